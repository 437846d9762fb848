// wgmma.mma_async names each register of its result, so there is one instruction text for each number of columns.
#pragma once

#include <cstdint>

namespace quire::cuda {

template <int N>
DEVICE void multiply_bf16_wide(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true);
template <int N>
DEVICE void multiply_e4m3_wide(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QUIRE_WGMMA(...) asm volatile(__VA_ARGS__)
#else  // compiled, and never run
#define QUIRE_WGMMA(...)
#endif

// clang-format off
// shape: of the instruction, with its types. end: its last operands, those of bf16 alone: that b is not transposed.
#define QUIRE_WIDE_PRODUCT_8(multiply, shape, end)                                               \
template <>                                                                                      \
DEVICE void multiply<8>(float (&d)[4], const uint32_t (&a)[4], uint64_t b, bool add) {           \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %9, 0; wgmma.mma_async.sync.aligned." shape " " \
              "{%0, %1, %2, %3}, "                                                               \
              "{%4, %5, %6, %7}, %8, add, 1, 1" end ";}"                                         \
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                   \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))   \
              : "memory");                                                                       \
}

#define QUIRE_WIDE_PRODUCT_32(multiply, shape, end)                                                                \
template <>                                                                                                        \
DEVICE void multiply<32>(float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool add) {                           \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %21, 0; wgmma.mma_async.sync.aligned." shape " "                  \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                           \
              "{%16, %17, %18, %19}, %20, add, 1, 1" end ";}"                                                      \
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),    \
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                     \
              : "memory");                                                                                         \
}

#define QUIRE_WIDE_PRODUCT_64(multiply, shape, end)                                                                   \
template <>                                                                                                           \
DEVICE void multiply<64>(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {                              \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %37, 0; wgmma.mma_async.sync.aligned." shape " "                     \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "      \
              "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                                              \
              "{%32, %33, %34, %35}, %36, add, 1, 1" end ";}"                                                         \
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),       \
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),   \
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])  \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                        \
              : "memory");                                                                                            \
}

#define QUIRE_WIDE_PRODUCT_128(multiply, shape, end)                                                                  \
template <>                                                                                                           \
DEVICE void multiply<128>(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {                             \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %69, 0; wgmma.mma_async.sync.aligned." shape " "                     \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "      \
              "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "       \
              "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "       \
              "%59, %60, %61, %62, %63}, "                                                                            \
              "{%64, %65, %66, %67}, %68, add, 1, 1" end ";}"                                                         \
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),       \
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),   \
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), \
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), \
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])  \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                        \
              : "memory");                                                                                            \
}

#define QUIRE_WIDE_PRODUCT_256(multiply, shape, end)                                                                          \
template <>                                                                                                                   \
DEVICE void multiply<256>(float (&d)[128], const uint32_t (&a)[4], uint64_t b, bool add) {                                    \
  QUIRE_WGMMA("{.reg .pred add; setp.ne.b32 add, %133, 0; wgmma.mma_async.sync.aligned." shape " "                            \
              "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "              \
              "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "               \
              "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "               \
              "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "               \
              "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "               \
              "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "                 \
              "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "                   \
              "{%128, %129, %130, %131}, %132, add, 1, 1" end ";}"                                                            \
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),               \
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),           \
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),         \
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),         \
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),         \
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),         \
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),         \
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),         \
              "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),         \
              "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),         \
              "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),         \
              "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),         \
              "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),     \
              "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
              "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), \
              "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])  \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))                                \
              : "memory");                                                                                                    \
}

// clang-format on

QUIRE_WIDE_PRODUCT_8(multiply_bf16_wide, "m64n8k16.f32.bf16.bf16", ", 0")
QUIRE_WIDE_PRODUCT_64(multiply_bf16_wide, "m64n64k16.f32.bf16.bf16", ", 0")
QUIRE_WIDE_PRODUCT_128(multiply_bf16_wide, "m64n128k16.f32.bf16.bf16", ", 0")
QUIRE_WIDE_PRODUCT_256(multiply_bf16_wide, "m64n256k16.f32.bf16.bf16", ", 0")
QUIRE_WIDE_PRODUCT_8(multiply_e4m3_wide, "m64n8k32.f32.e4m3.e4m3", "")
QUIRE_WIDE_PRODUCT_32(multiply_e4m3_wide, "m64n32k32.f32.e4m3.e4m3", "")
QUIRE_WIDE_PRODUCT_64(multiply_e4m3_wide, "m64n64k32.f32.e4m3.e4m3", "")
QUIRE_WIDE_PRODUCT_128(multiply_e4m3_wide, "m64n128k32.f32.e4m3.e4m3", "")

#undef QUIRE_WIDE_PRODUCT_8
#undef QUIRE_WIDE_PRODUCT_32
#undef QUIRE_WIDE_PRODUCT_64
#undef QUIRE_WIDE_PRODUCT_128
#undef QUIRE_WIDE_PRODUCT_256
#undef QUIRE_WGMMA

}  // namespace quire::cuda
