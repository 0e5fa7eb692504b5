// A convolution that keeps the size, with bias and activation: channels last, half precision.
// Compiled once for each kind of layer:
//   CIN   channels in: 16, 32 or 64      COUT    channels out, a multiple of 8
//   SIZE  taps across and down, odd      TH, TW  pixels of a tile, multiples of 8
//   KIND  "f16" or "bf16"
// A block of four warps, which multiply together, keeps all weights in shared memory and walks
// over tiles. Every tap of a tile reads the same pixels, each at its own shift, so that nothing
// is gathered first.

typedef unsigned int u32;
typedef unsigned long long u64;

#define WARPS 4
#define THREADS (32 * WARPS)
#define HALO (SIZE / 2)
#define PIXELS_X (TW + 2 * HALO)
#define PIXELS_Y (TH + 2 * HALO)
#define CHUNKS (CIN / 8)                      // pieces of 16 bytes in a pixel
#define ROW (CIN * 2)                         // bytes of a pixel
#define WEIGHT_BYTES ((SIZE * SIZE * COUT * ROW + 1023) / 1024 * 1024)
#define BLOCKS (TH * TW / 64)                 // of 8 x 8 pixels, multiplied at once
#define NTILES (COUT / 8)
#define STEP (THREADS / CHUNKS)               // pixels that a block fetches at once

// Where a pixel's chunk lies: eight rows at one chunk are in different banks.
__device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    const u32 turn = CHUNKS == 8 ? row & 7 : CHUNKS == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
    return row * ROW + ((chunk ^ turn) << 4);
}

// Sixteen bytes to shared memory, zeros where there is nothing.
__device__ __forceinline__ void fetch(u32 to, const void *from, bool there) {
    const u32 size = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size));
}

// An operand of group_multiply: rows as place() has them, groups of eight `stride` bytes apart.
__device__ __forceinline__ u64 described(u32 at, u32 stride) {
    const u64 swizzle = ROW == 128 ? 1 : ROW == 64 ? 2 : 3;
    return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | (u64)(stride >> 4) << 32 | swizzle << 62;
}

__device__ __forceinline__ float activated(float x, float slope) { return x > 0 ? x : x * slope; }

__device__ __forceinline__ u32 pair(float low, float high) {
    u32 r;
    asm("cvt.rn." KIND "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// The first channel of a lane's `n`-th pair: pairs of one lane lie together, see packed_kernel.
__device__ __forceinline__ int channel(int lane, int n) {
    const int together = NTILES % 4 == 0 ? 4 : NTILES;
    return n / together * 8 * together + (lane & 3) * 2 * together + n % together * 2;
}

extern "C" __global__ void __launch_bounds__(THREADS)
convolve(const char *source, const char *weights, const float *bias, const float *slope,
         char *target, int rows, int columns, int across, int down, int tiles) {
    extern __shared__ char unaligned[];
    __shared__ float offsets[COUT], slopes[COUT];
    const u32 base = ((u32)__cvta_generic_to_shared(unaligned) + 1023) / 1024 * 1024;
    const u32 pixels = base + WEIGHT_BYTES;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

    for (int i = threadIdx.x; i < SIZE * SIZE * COUT * CHUNKS; i += THREADS)
        fetch(base + place(i / CHUNKS, i % CHUNKS), weights + (u64)i * 16, true);
    for (int i = threadIdx.x; i < COUT; i += THREADS) {
        offsets[i] = bias[i];
        slopes[i] = slope[i];
    }

    auto load = [&](int tile) {
        const int image = tile / (across * down), rest = tile % (across * down);
        const int top = rest / across * TH - HALO, left = rest % across * TW - HALO;
        const int chunk = threadIdx.x % CHUNKS;
        const char *picture = source + (u64)image * rows * columns * ROW + chunk * 16;
        int px = threadIdx.x / CHUNKS % PIXELS_X, py = threadIdx.x / CHUNKS / PIXELS_X;
        for (int pixel = threadIdx.x / CHUNKS; pixel < PIXELS_Y * PIXELS_X; pixel += STEP) {
            const int y = top + py, x = left + px;
            const bool there = (u32)y < (u32)rows && (u32)x < (u32)columns;
            const char *from = picture + (there ? ((u64)y * columns + x) * ROW : 0);
            fetch(pixels + place(pixel, chunk), from, there);
            px += STEP % PIXELS_X;
            py += STEP / PIXELS_X;
            if (px >= PIXELS_X) {
                px -= PIXELS_X;
                py++;
            }
        }
    };

    load(blockIdx.x);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();

        // sums[m] is of block m of 8 x 8 pixels, two rows for each warp.
        float sums[BLOCKS][NTILES][4];
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int tap = 0; tap < SIZE * SIZE; tap++)
#pragma unroll
            for (int k = 0; k < CIN / 16; k++)
#pragma unroll
                for (int m = 0; m < BLOCKS; m++) {
                    const u32 y = m / (TW / 8) * 8 + tap / SIZE, x = m % (TW / 8) * 8 + tap % SIZE;
                    const u64 a = described(pixels + (y * PIXELS_X + x) * ROW + k * 32, PIXELS_X * ROW);
                    const u64 b = described(base + tap * COUT * ROW + k * 32, 8 * ROW);
                    group_multiply(sums[m], a, b, tap + k > 0);
                }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
        if (tile + gridDim.x < tiles) load(tile + gridDim.x);

        const int image = tile / (across * down), rest = tile % (across * down);
#pragma unroll
        for (int m = 0; m < BLOCKS; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int y = rest / across * TH + m / (TW / 8) * 8 + warp * 2 + half;
                const int x = rest % across * TW + m % (TW / 8) * 8 + (lane >> 2);
                if (y >= rows || x >= columns) continue;
                u32 made[NTILES];
#pragma unroll
                for (int n = 0; n < NTILES; n++) {
                    const int o = channel(lane, n);
                    const float *sum = sums[m][n] + 2 * half;
                    made[n] = pair(activated(sum[0] + offsets[o], slopes[o]),
                                   activated(sum[1] + offsets[o + 1], slopes[o + 1]));
                }
                char *to = target + (((u64)image * rows + y) * columns + x) * COUT * 2;
                if (NTILES % 4 == 0) {
#pragma unroll
                    for (int n = 0; n < NTILES; n += 4)
                        *(uint4 *)(to + channel(lane, n) * 2) =
                            make_uint4(made[n], made[n + 1], made[n + 2], made[n + 3]);
                } else {
#pragma unroll
                    for (int n = 0; n < NTILES; n++) *(u32 *)(to + channel(lane, n) * 2) = made[n];
                }
            }
    }
}
