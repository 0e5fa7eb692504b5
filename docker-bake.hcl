# docker buildx bake            all images
# docker buildx bake cpu        one
# docker buildx bake check      build them and start each once
# docker buildx bake cpu-test   the cpu image with the unit tests in it

# ---- versions -------------------------------------------------------------------------------
variable "VERSION"     { default = "0.1.0" }
variable "BASE_IMAGE"  { default = "debian:trixie-slim" }
variable "INTEL_SUITE" { default = "forky" }
variable "REVISION"    { default = "" }

# ---- where images go: IMAGE may name a registry; RELEASE adds tags like 0.1-cuda --------------
variable "IMAGE"   { default = "avdnn" }
variable "RELEASE" { default = "" }
variable "SOURCE"  { default = "" }

# "on" attaches provenance and an SBOM; it needs a builder that can export them.
variable "ATTEST" { default = "" }

# An index that has PyTorch without CUDA, for the cpu image.
variable "TORCH_CPU_INDEX" { default = "" }

# ---- site settings: paths below the tree, "" for none (docs/images.md) ------------------------
variable "SITE_CA"          { default = "" }
variable "SITE_PIP_CONF"    { default = "" }
variable "SITE_APT_CONF"    { default = "" }
variable "SITE_APT_SOURCES" { default = "" }
variable "WHEELHOUSE"       { default = "" }

group "default" {
  targets = ["cpu", "openvino", "cuda", "tensorflow"]
}

group "check" {
  targets = ["cpu-check", "openvino-check", "cuda-check", "tensorflow-check"]
}

target "_site" {
  context = "."
  args    = { BASE_IMAGE = BASE_IMAGE }
  secret = concat(
    SITE_CA          != "" ? ["id=ca,src=${SITE_CA}"] : [],
    SITE_PIP_CONF    != "" ? ["id=pip_conf,src=${SITE_PIP_CONF}"] : [],
    SITE_APT_CONF    != "" ? ["id=apt_conf,src=${SITE_APT_CONF}"] : [],
    SITE_APT_SOURCES != "" ? ["id=apt_sources,src=${SITE_APT_SOURCES}"] : [],
  )
}

target "base" {
  matrix     = { stage = ["core", "tools", "app", "wheelhouse"] }
  name       = stage
  inherits   = ["_site"]
  dockerfile = "images/base/Dockerfile"
  target     = stage
  contexts   = WHEELHOUSE != "" ? { wheelhouse = WHEELHOUSE } : {}
  output     = ["type=cacheonly"]
}

target "image" {
  matrix     = { image = ["cpu", "openvino", "cuda", "tensorflow"] }
  name       = image
  inherits   = ["_site"]
  dockerfile = "images/${image}/Dockerfile"
  contexts = {
    core       = "target:core"
    tools      = "target:tools"
    app        = "target:app"
    wheelhouse = WHEELHOUSE != "" ? WHEELHOUSE : "target:wheelhouse"
  }
  args = {
    INTEL_SUITE     = INTEL_SUITE
    TORCH_CPU_INDEX = TORCH_CPU_INDEX
  }
  tags = concat(
    ["${IMAGE}:${image}"],
    RELEASE != "" ? ["${IMAGE}:${RELEASE}-${image}"] : [],
  )
  labels = merge(
    {
      "org.opencontainers.image.title"       = "avdnn (${image})"
      "org.opencontainers.image.description" = "FFmpeg's DNN video filters as a Python program"
      "org.opencontainers.image.version"     = VERSION
      "org.opencontainers.image.licenses"    = "Apache-2.0"
      "org.opencontainers.image.base.name"   = BASE_IMAGE
    },
    REVISION != "" ? { "org.opencontainers.image.revision" = REVISION } : {},
    SOURCE   != "" ? { "org.opencontainers.image.source" = SOURCE } : {},
  )
  attest = ATTEST == "on" ? ["type=provenance,mode=max", "type=sbom"] : []
}

target "check" {
  matrix     = { image = ["cpu", "openvino", "cuda", "tensorflow"] }
  name       = "${image}-check"
  context    = "images/check"
  contexts   = { image = "target:${image}" }
  output     = ["type=cacheonly"]
}

target "cpu-test" {
  inherits = ["cpu"]
  target   = "test"
  tags     = ["${IMAGE}:cpu-test"]
}
