// wgmma.mma_async names each register of its result, so there is one instruction text for each number of columns.
#pragma once

#include <cstdint>

namespace quire::cuda {

template <int N>
DEVICE void multiply_bf16_wide(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true);
template <int N>
DEVICE void multiply_e4m3_wide(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true);
template <int N>
DEVICE void multiply_i8_wide(int32_t (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QUIRE_WGMMA(...) asm volatile(__VA_ARGS__)
#else  // compiled, and never run
#define QUIRE_WGMMA(...)
#endif

// Operands of the instruction that it reads and writes.
#define QUIRE_FLOAT(x) "+f"(x)
#define QUIRE_INTEGER(x) "+r"(x)

// clang-format off
// number, io: the type of results, and what makes them operands. shape: of the instruction, with its types. end: its last operands: of
// floats the signs of a and b, and of bf16 that b is not transposed.
#define QUIRE_WIDE_PRODUCT_8(multiply, number, io, shape, end)                                   \
template <>                                                                                      \
DEVICE void multiply<8>(number (&d)[4], const uint32_t (&a)[4], uint64_t b, bool add) {          \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %9, 0; wgmma.mma_async.sync.aligned." shape " " \
              "{%0, %1, %2, %3}, "                                                               \
              "{%4, %5, %6, %7}, %8, add" end ";}"                                               \
              : io(d[0]), io(d[1]), io(d[2]), io(d[3])                                           \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))   \
              : "memory");                                                                       \
}

#define QUIRE_WIDE_PRODUCT_32(multiply, number, io, shape, end)                                    \
template <>                                                                                        \
DEVICE void multiply<32>(number (&d)[16], const uint32_t (&a)[4], uint64_t b, bool add) {          \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %21, 0; wgmma.mma_async.sync.aligned." shape " "  \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "           \
              "{%16, %17, %18, %19}, %20, add" end ";}"                                            \
              : io(d[0]), io(d[1]), io(d[2]), io(d[3]), io(d[4]), io(d[5]), io(d[6]), io(d[7]),    \
              io(d[8]), io(d[9]), io(d[10]), io(d[11]), io(d[12]), io(d[13]), io(d[14]), io(d[15]) \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))     \
              : "memory");                                                                         \
}

#define QUIRE_WIDE_PRODUCT_64(multiply, number, io, shape, end)                                                  \
template <>                                                                                                      \
DEVICE void multiply<64>(number (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {                        \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %37, 0; wgmma.mma_async.sync.aligned." shape " "                \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
              "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                         \
              "{%32, %33, %34, %35}, %36, add" end ";}"                                                          \
              : io(d[0]), io(d[1]), io(d[2]), io(d[3]), io(d[4]), io(d[5]), io(d[6]), io(d[7]),                  \
              io(d[8]), io(d[9]), io(d[10]), io(d[11]), io(d[12]), io(d[13]), io(d[14]), io(d[15]),              \
              io(d[16]), io(d[17]), io(d[18]), io(d[19]), io(d[20]), io(d[21]), io(d[22]), io(d[23]),            \
              io(d[24]), io(d[25]), io(d[26]), io(d[27]), io(d[28]), io(d[29]), io(d[30]), io(d[31])             \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                   \
              : "memory");                                                                                       \
}

#define QUIRE_WIDE_PRODUCT_128(multiply, number, io, shape, end)                                                 \
template <>                                                                                                      \
DEVICE void multiply<128>(number (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {                       \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %69, 0; wgmma.mma_async.sync.aligned." shape " "                \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
              "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "  \
              "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "  \
              "%59, %60, %61, %62, %63}, "                                                                       \
              "{%64, %65, %66, %67}, %68, add" end ";}"                                                          \
              : io(d[0]), io(d[1]), io(d[2]), io(d[3]), io(d[4]), io(d[5]), io(d[6]), io(d[7]),                  \
              io(d[8]), io(d[9]), io(d[10]), io(d[11]), io(d[12]), io(d[13]), io(d[14]), io(d[15]),              \
              io(d[16]), io(d[17]), io(d[18]), io(d[19]), io(d[20]), io(d[21]), io(d[22]), io(d[23]),            \
              io(d[24]), io(d[25]), io(d[26]), io(d[27]), io(d[28]), io(d[29]), io(d[30]), io(d[31]),            \
              io(d[32]), io(d[33]), io(d[34]), io(d[35]), io(d[36]), io(d[37]), io(d[38]), io(d[39]),            \
              io(d[40]), io(d[41]), io(d[42]), io(d[43]), io(d[44]), io(d[45]), io(d[46]), io(d[47]),            \
              io(d[48]), io(d[49]), io(d[50]), io(d[51]), io(d[52]), io(d[53]), io(d[54]), io(d[55]),            \
              io(d[56]), io(d[57]), io(d[58]), io(d[59]), io(d[60]), io(d[61]), io(d[62]), io(d[63])             \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                   \
              : "memory");                                                                                       \
}

#define QUIRE_WIDE_PRODUCT_256(multiply, number, io, shape, end)                                                 \
template <>                                                                                                      \
DEVICE void multiply<256>(number (&d)[128], const uint32_t (&a)[4], uint64_t b, bool add) {                      \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %133, 0; wgmma.mma_async.sync.aligned." shape " "               \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
              "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "  \
              "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "  \
              "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "  \
              "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "  \
              "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "    \
              "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "      \
              "{%128, %129, %130, %131}, %132, add" end ";}"                                                     \
              : io(d[0]), io(d[1]), io(d[2]), io(d[3]), io(d[4]), io(d[5]), io(d[6]), io(d[7]),                  \
              io(d[8]), io(d[9]), io(d[10]), io(d[11]), io(d[12]), io(d[13]), io(d[14]), io(d[15]),              \
              io(d[16]), io(d[17]), io(d[18]), io(d[19]), io(d[20]), io(d[21]), io(d[22]), io(d[23]),            \
              io(d[24]), io(d[25]), io(d[26]), io(d[27]), io(d[28]), io(d[29]), io(d[30]), io(d[31]),            \
              io(d[32]), io(d[33]), io(d[34]), io(d[35]), io(d[36]), io(d[37]), io(d[38]), io(d[39]),            \
              io(d[40]), io(d[41]), io(d[42]), io(d[43]), io(d[44]), io(d[45]), io(d[46]), io(d[47]),            \
              io(d[48]), io(d[49]), io(d[50]), io(d[51]), io(d[52]), io(d[53]), io(d[54]), io(d[55]),            \
              io(d[56]), io(d[57]), io(d[58]), io(d[59]), io(d[60]), io(d[61]), io(d[62]), io(d[63]),            \
              io(d[64]), io(d[65]), io(d[66]), io(d[67]), io(d[68]), io(d[69]), io(d[70]), io(d[71]),            \
              io(d[72]), io(d[73]), io(d[74]), io(d[75]), io(d[76]), io(d[77]), io(d[78]), io(d[79]),            \
              io(d[80]), io(d[81]), io(d[82]), io(d[83]), io(d[84]), io(d[85]), io(d[86]), io(d[87]),            \
              io(d[88]), io(d[89]), io(d[90]), io(d[91]), io(d[92]), io(d[93]), io(d[94]), io(d[95]),            \
              io(d[96]), io(d[97]), io(d[98]), io(d[99]), io(d[100]), io(d[101]), io(d[102]), io(d[103]),        \
              io(d[104]), io(d[105]), io(d[106]), io(d[107]), io(d[108]), io(d[109]), io(d[110]), io(d[111]),    \
              io(d[112]), io(d[113]), io(d[114]), io(d[115]), io(d[116]), io(d[117]), io(d[118]), io(d[119]),    \
              io(d[120]), io(d[121]), io(d[122]), io(d[123]), io(d[124]), io(d[125]), io(d[126]), io(d[127])     \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                   \
              : "memory");                                                                                       \
}

// clang-format on

QUIRE_WIDE_PRODUCT_8(multiply_bf16_wide, float, QUIRE_FLOAT, "m64n8k16.f32.bf16.bf16", ", 1, 1, 0")
QUIRE_WIDE_PRODUCT_64(multiply_bf16_wide, float, QUIRE_FLOAT, "m64n64k16.f32.bf16.bf16", ", 1, 1, 0")
QUIRE_WIDE_PRODUCT_128(multiply_bf16_wide, float, QUIRE_FLOAT, "m64n128k16.f32.bf16.bf16", ", 1, 1, 0")
QUIRE_WIDE_PRODUCT_256(multiply_bf16_wide, float, QUIRE_FLOAT, "m64n256k16.f32.bf16.bf16", ", 1, 1, 0")
QUIRE_WIDE_PRODUCT_8(multiply_e4m3_wide, float, QUIRE_FLOAT, "m64n8k32.f32.e4m3.e4m3", ", 1, 1")
QUIRE_WIDE_PRODUCT_32(multiply_e4m3_wide, float, QUIRE_FLOAT, "m64n32k32.f32.e4m3.e4m3", ", 1, 1")
QUIRE_WIDE_PRODUCT_64(multiply_e4m3_wide, float, QUIRE_FLOAT, "m64n64k32.f32.e4m3.e4m3", ", 1, 1")
QUIRE_WIDE_PRODUCT_128(multiply_e4m3_wide, float, QUIRE_FLOAT, "m64n128k32.f32.e4m3.e4m3", ", 1, 1")
QUIRE_WIDE_PRODUCT_64(multiply_i8_wide, int32_t, QUIRE_INTEGER, "m64n64k32.s32.s8.s8", "")
QUIRE_WIDE_PRODUCT_128(multiply_i8_wide, int32_t, QUIRE_INTEGER, "m64n128k32.s32.s8.s8", "")
QUIRE_WIDE_PRODUCT_256(multiply_i8_wide, int32_t, QUIRE_INTEGER, "m64n256k32.s32.s8.s8", "")

#undef QUIRE_FLOAT
#undef QUIRE_INTEGER
#undef QUIRE_WIDE_PRODUCT_8
#undef QUIRE_WIDE_PRODUCT_32
#undef QUIRE_WIDE_PRODUCT_64
#undef QUIRE_WIDE_PRODUCT_128
#undef QUIRE_WIDE_PRODUCT_256
#undef QUIRE_WGMMA

}  // namespace quire::cuda
