// Frames to tensors and back, fused. Compiled once for each pair of
//   SAMPLE  unsigned char | unsigned short      what a plane holds
//   TENSOR  float | half_t | bfloat_t           what the network takes and gives
// Strides of planes are in samples, strides of tensors in elements. gridDim.z is the batch.
// Arguments are 64-bit integers, pointers and floats only; structs are spelled out by macros.
// Products and sums are kept apart (__fmul_rn, __fadd_rn): the host rounds after each.

struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };

__device__ __forceinline__ float value(float x) { return x; }
__device__ __forceinline__ float value(half_t x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ float value(bfloat_t x) {
    return __uint_as_float(((unsigned int)x.bits) << 16);
}
__device__ __forceinline__ void put(float *p, float x) { *p = x; }
__device__ __forceinline__ void put(half_t *p, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
}
__device__ __forceinline__ void put(bfloat_t *p, float x) {
    unsigned int bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        p->bits = 0x7fff;
    } else {
        p->bits = (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
}

struct Plane {          // one plane of every frame in the batch
    SAMPLE *data;
    long long row;      // from row to row
    long long frame;    // from frame to frame
};

struct Tensor {
    TENSOR *data;
    long long frame, channel, row, column;
};

struct Norm {           // value = code * unit; tensor = value * gain - offset, and back
    float unit, gain, offset;
    float factor, shift, peak;
};

struct Weights {        // see color.py
    float black, per_luma, middle, per_chroma;
    float red_v, green_u, green_v, blue_u;
    float luma, chroma, red, green, blue;
};

typedef long long wide_t;
#define PLANE(p) SAMPLE *p##_data, wide_t p##_row, wide_t p##_frame
#define AS_PLANE(p) const Plane p = {p##_data, p##_row, p##_frame}
#define TENSOR_OF(t) TENSOR *t##_data, wide_t t##_frame, wide_t t##_channel, wide_t t##_row, \
                     wide_t t##_column
#define AS_TENSOR(t) const Tensor t = {t##_data, t##_frame, t##_channel, t##_row, t##_column}
#define NORM float unit, float gain, float offset, float factor, float shift, float peak
#define AS_NORM const Norm n = {unit, gain, offset, factor, shift, peak}
#define WEIGHTS float black, float per_luma, float middle, float per_chroma, float red_v, \
                float green_u, float green_v, float blue_u, float luma_, float chroma_, \
                float red_, float green_, float blue_
#define AS_WEIGHTS const Weights w = {black, per_luma, middle, per_chroma, red_v, green_u, \
                                      green_v, blue_u, luma_, chroma_, red_, green_, blue_}

__device__ __forceinline__ float to_tensor(float v, const Norm &n) {
    return __fsub_rn(__fmul_rn(v, n.gain), n.offset);
}

// clip(round_half_even(factor * x + shift)); a NaN or infinity raises the frame's flag.
__device__ __forceinline__ float to_code(float x, const Norm &n, int *bad) {
    float y = __fadd_rn(__fmul_rn(x, n.factor), n.shift);
    if (!(fabsf(y) < __int_as_float(0x7f800000))) bad[blockIdx.z] = 1;
    return fminf(fmaxf(rintf(y), 0.0f), n.peak);
}

__device__ __forceinline__ float clip01(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

// ---- luma: four samples a thread, in one access where they are aligned ---------------------

struct __align__(4 * sizeof(SAMPLE)) Samples { SAMPLE at[4]; };
struct __align__(4 * sizeof(TENSOR)) Tensors { TENSOR at[4]; };

template <typename T> __device__ __forceinline__ bool aligned(const void *p) {
    return ((unsigned long long)p & (sizeof(T) - 1)) == 0;
}

extern "C" __global__ void pack_luma(PLANE(in), wide_t low, TENSOR_OF(out), NORM, wide_t width,
                                     wide_t height) {
    AS_PLANE(in); AS_TENSOR(out); AS_NORM;
    int x = (blockIdx.x * blockDim.x + threadIdx.x) * 4, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y >= height) return;
    const SAMPLE *from = in.data + blockIdx.z * in.frame + y * in.row + x;
    TENSOR *to = out.data + blockIdx.z * out.frame + y * out.row + x * out.column;
    if (x + 3 < width && out.column == 1 && aligned<Samples>(from) && aligned<Tensors>(to)) {
        Samples four = *(const Samples *)from;
        Tensors made;
#pragma unroll
        for (int i = 0; i < 4; i++)
            put(&made.at[i], to_tensor(__fmul_rn((float)(four.at[i] >> low), n.unit), n));
        *(Tensors *)to = made;
        return;
    }
    for (int i = 0; i < 4 && x + i < width; i++)
        put(to + i * out.column, to_tensor(__fmul_rn((float)(from[i] >> low), n.unit), n));
}

extern "C" __global__ void unpack_luma(TENSOR_OF(in), NORM, PLANE(out), wide_t low, wide_t width,
                                       wide_t height, int *bad) {
    AS_TENSOR(in); AS_PLANE(out); AS_NORM;
    int x = (blockIdx.x * blockDim.x + threadIdx.x) * 4, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (y >= height) return;
    const TENSOR *from = in.data + blockIdx.z * in.frame + y * in.row + x * in.column;
    SAMPLE *to = out.data + blockIdx.z * out.frame + y * out.row + x;
    if (x + 3 < width && in.column == 1 && aligned<Tensors>(from) && aligned<Samples>(to)) {
        Tensors four = *(const Tensors *)from;
        Samples made;
#pragma unroll
        for (int i = 0; i < 4; i++)
            made.at[i] = (SAMPLE)((unsigned int)to_code(value(four.at[i]), n, bad) << low);
        *(Samples *)to = made;
        return;
    }
    for (int i = 0; i < 4 && x + i < width; i++)
        to[i] = (SAMPLE)((unsigned int)to_code(value(from[i * in.column]), n, bad) << low);
}

// ---- packed colour: `step` samples a pixel, red, green and blue at these offsets ----------

extern "C" __global__ void pack_packed(PLANE(in), wide_t step, wide_t red, wide_t green, wide_t blue,
                                       wide_t low, TENSOR_OF(out), NORM, wide_t width,
                                       wide_t height) {
    AS_PLANE(in); AS_TENSOR(out); AS_NORM;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const SAMPLE *from = in.data + blockIdx.z * in.frame + y * in.row + (long long)x * step;
    TENSOR *to = out.data + blockIdx.z * out.frame + y * out.row + x * out.column;
    put(to, to_tensor(__fmul_rn((float)(from[red] >> low), n.unit), n));
    put(to + out.channel, to_tensor(__fmul_rn((float)(from[green] >> low), n.unit), n));
    put(to + 2 * out.channel, to_tensor(__fmul_rn((float)(from[blue] >> low), n.unit), n));
}

// `pad` is the offset of the fourth sample or -1; it is written from `alpha` or, without, as 255.
extern "C" __global__ void unpack_packed(TENSOR_OF(in), NORM, PLANE(out), wide_t step, wide_t red,
                                         wide_t green, wide_t blue, wide_t low, wide_t pad,
                                         PLANE(alpha), wide_t width, wide_t height, int *bad) {
    AS_TENSOR(in); AS_PLANE(out); AS_PLANE(alpha); AS_NORM;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const TENSOR *from = in.data + blockIdx.z * in.frame + y * in.row + x * in.column;
    SAMPLE *to = out.data + blockIdx.z * out.frame + y * out.row + (long long)x * step;
    to[red] = (SAMPLE)((unsigned int)to_code(value(from[0]), n, bad) << low);
    to[green] = (SAMPLE)((unsigned int)to_code(value(from[in.channel]), n, bad) << low);
    to[blue] = (SAMPLE)((unsigned int)to_code(value(from[2 * in.channel]), n, bad) << low);
    if (pad < 0) return;
    const SAMPLE *old = alpha.data + blockIdx.z * alpha.frame + y * alpha.row;
    to[pad] = alpha.data ? old[(long long)x * step + pad] : (SAMPLE)n.peak;
}

// ---- 4:2:0 with interleaved chroma, through the stream's matrix -----------------------------
// A chroma sample stands for its 2x2 block, as libswscale's own 4:2:0 converter has it: taken
// four times on the way in and averaged on the way out, an untouched picture returns unchanged.

extern "C" __global__ void pack_yuv(PLANE(luma), PLANE(chroma), wide_t low, WEIGHTS, TENSOR_OF(out),
                                    wide_t first, wide_t last, NORM, wide_t width,
                                    wide_t height) {
    AS_PLANE(luma); AS_PLANE(chroma); AS_TENSOR(out); AS_NORM; AS_WEIGHTS;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const SAMPLE *pair = chroma.data + blockIdx.z * chroma.frame + (y >> 1) * chroma.row;
    pair += x & ~1;
    float l = luma.data[blockIdx.z * luma.frame + y * luma.row + x] >> low;
    l = (l - w.black) * w.per_luma;
    float u = ((float)(pair[0] >> low) - w.middle) * w.per_chroma;
    float v = ((float)(pair[1] >> low) - w.middle) * w.per_chroma;
    TENSOR *to = out.data + blockIdx.z * out.frame + y * out.row + x * out.column;
    put(to + first * out.channel, to_tensor(clip01(l + w.red_v * v), n));
    put(to + out.channel, to_tensor(clip01(l - w.green_u * u - w.green_v * v), n));
    put(to + last * out.channel, to_tensor(clip01(l + w.blue_u * u), n));
}

extern "C" __global__ void unpack_yuv(TENSOR_OF(in), wide_t first, wide_t last, NORM, WEIGHTS,
                                      PLANE(luma), PLANE(chroma), wide_t low, wide_t width,
                                      wide_t height, int *bad) {
    AS_TENSOR(in); AS_PLANE(luma); AS_PLANE(chroma); AS_NORM; AS_WEIGHTS;
    int cx = blockIdx.x * blockDim.x + threadIdx.x, cy = blockIdx.y * blockDim.y + threadIdx.y;
    if (2 * cx >= width || 2 * cy >= height) return;
    float sum_u = 0, sum_v = 0;
    int seen = 0;
    for (int i = 0; i < 4; i++) {
        int x = 2 * cx + (i & 1), y = 2 * cy + (i >> 1);
        if (x >= width || y >= height) continue;
        const TENSOR *from = in.data + blockIdx.z * in.frame + y * in.row + x * in.column;
        float r = value(from[first * in.channel]) * n.factor + n.shift;
        float g = value(from[in.channel]) * n.factor + n.shift;
        float b = value(from[last * in.channel]) * n.factor + n.shift;
        if (!(fabsf(r) + fabsf(g) + fabsf(b) < __int_as_float(0x7f800000))) bad[blockIdx.z] = 1;
        r = clip01(r);
        g = clip01(g);
        b = clip01(b);
        float l = w.red * r + w.green * g + w.blue * b;
        float code = fminf(fmaxf(rintf(l * w.luma + w.black), 0.0f), peak);
        luma.data[blockIdx.z * luma.frame + y * luma.row + x] =
            (SAMPLE)((unsigned int)code << low);
        sum_u += (b - l) / w.blue_u;
        sum_v += (r - l) / w.red_v;
        seen++;
    }
    float u = fminf(fmaxf(rintf(sum_u / seen * w.chroma + w.middle), 0.0f), peak);
    float v = fminf(fmaxf(rintf(sum_v / seen * w.chroma + w.middle), 0.0f), peak);
    SAMPLE *pair = chroma.data + blockIdx.z * chroma.frame + cy * chroma.row + 2 * cx;
    pair[0] = (SAMPLE)((unsigned int)u << low);
    pair[1] = (SAMPLE)((unsigned int)v << low);
}

// ---- one plane to another size: taps from tables (taps.py), first across, then down ---------
// Between the passes a line is held in fixed point, `steps` to the code and at most `top`.
// A thread makes a column of RUN samples, so that each of its lines is made once.

#define RUN 8

extern "C" __global__ void resample(PLANE(in), wide_t in_width, wide_t in_height, PLANE(out),
                                    wide_t width, wide_t height, wide_t components, wide_t low,
                                    float peak, float steps, float top, const int *columns,
                                    const float *across, wide_t wide, const int *rows,
                                    const float *down, wide_t tall) {
    AS_PLANE(in); AS_PLANE(out);
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = (blockIdx.y * blockDim.y + threadIdx.y) * RUN;
    if (x >= width || y >= height) return;
    const int count = min(RUN, (int)height - y);
    const SAMPLE *from = in.data + blockIdx.z * in.frame;
    float sums[RUN][4] = {}, step = 1.0f / steps;  // steps is a power of two
    for (int row = rows[y]; row < rows[y + count - 1] + tall; row++) {
        const SAMPLE *line = from + min(max(row, 0), (int)in_height - 1) * in.row;
        float made[4] = {0, 0, 0, 0};
        for (int i = 0; i < wide; i++) {
            int sx = min(max(columns[x] + i, 0), (int)in_width - 1);
            const SAMPLE *pixel = line + (long long)sx * components;
            float tap = across[x * wide + i];
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (c < components) made[c] += tap * (float)(pixel[c] >> low);
        }
#pragma unroll
        for (int c = 0; c < 4; c++) made[c] = fminf(floorf(made[c] * steps) * step, top);
#pragma unroll
        for (int j = 0; j < RUN; j++) {
            if (j >= count) break;
            const int place = row - rows[y + j];
            if (place < 0 || place >= tall) continue;
            const float tap = down[(y + j) * tall + place];
#pragma unroll
            for (int c = 0; c < 4; c++) sums[j][c] += tap * made[c];
        }
    }
#pragma unroll
    for (int j = 0; j < RUN; j++) {
        if (j >= count) break;
        SAMPLE *to = out.data + blockIdx.z * out.frame + (y + j) * out.row + (long long)x * components;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c >= components) break;
            float code = fminf(fmaxf(floorf(sums[j][c] + 0.5f), 0.0f), peak);
            to[c] = (SAMPLE)((unsigned int)code << low);
        }
    }
}

// ---- tensors to tensors: tiles of pictures, and pictures of tiles ---------------------------

// `places` has the frame, top and left of each tile; beyond the right and bottom edge of the
// picture its edge goes on.
extern "C" __global__ void cut_tiles(TENSOR_OF(in), wide_t in_width, wide_t in_height,
                                     TENSOR_OF(out), wide_t channels, wide_t width, wide_t height,
                                     const int *places) {
    AS_TENSOR(in); AS_TENSOR(out);
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int *place = places + 3 * blockIdx.z;
    int sy = min(place[1] + y, (int)in_height - 1), sx = min(place[2] + x, (int)in_width - 1);
    const TENSOR *from = in.data + place[0] * in.frame + sy * in.row + sx * in.column;
    TENSOR *to = out.data + blockIdx.z * out.frame + y * out.row + x * out.column;
    for (int c = 0; c < channels; c++) put(to + c * out.channel, value(from[c * in.channel]));
}

// Adds `count` tiles to the part of a picture of floats that begins at (left, top). `places` has
// the top and left of each tile there and where its weights begin: a pixel's is that of its line
// times that of its column. What has none is not looked at.
extern "C" __global__ void add_tiles(TENSOR_OF(in), wide_t in_width, wide_t in_height,
                                     wide_t count, float *out, wide_t channel, wide_t row,
                                     wide_t column, wide_t channels, wide_t left, wide_t top,
                                     wide_t width, wide_t height, const int *places,
                                     const float *down, const float *across) {
    AS_TENSOR(in);
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    x += left;
    y += top;
    float *to = out + y * row + x * column;
    for (int t = 0; t < count; t++) {
        const int *place = places + 4 * t;
        int ty = y - place[0], tx = x - place[1];
        if (ty < 0 || ty >= in_height || tx < 0 || tx >= in_width) continue;
        float weight = down[place[2] + ty] * across[place[3] + tx];
        if (weight == 0) continue;
        const TENSOR *from = in.data + t * in.frame + ty * in.row + tx * in.column;
        for (int c = 0; c < channels; c++)
            to[c * channel] += weight * value(from[c * in.channel]);
    }
}

// Pictures at another size: taps from tables, first across, then down.
extern "C" __global__ void stretch(TENSOR_OF(in), TENSOR_OF(out), wide_t channels, wide_t width,
                                   wide_t height, const int *columns, const float *across,
                                   wide_t wide, const int *rows, const float *down, wide_t tall) {
    AS_TENSOR(in); AS_TENSOR(out);
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const TENSOR *from = in.data + blockIdx.z * in.frame + rows[y] * in.row;
    from += columns[x] * in.column;
    TENSOR *to = out.data + blockIdx.z * out.frame + y * out.row + x * out.column;
    for (int c = 0; c < channels; c++) {
        float sum = 0;
        for (int j = 0; j < tall; j++) {
            float line = 0;
            for (int i = 0; i < wide; i++)
                line += across[x * wide + i]
                        * value(from[c * in.channel + j * in.row + i * in.column]);
            sum += down[y * tall + j] * line;
        }
        put(to + c * out.channel, sum);
    }
}
