# Included by the Makefile; docs/images.md explains .site/ and what each image holds.
.PHONY: images test-images
images:           ## build all four container images
	scripts/bake

image-%:          ## build one of them: make image-cpu
	scripts/bake $*

test-images: $(VENV)/.test ## build the cpu and openvino images and test them as containers
	PYTHON=$(RUN) scripts/test-images
