// Makes this test program see a CPU with AMX and nothing else but the reference (tests/CMakeLists.txt wraps the two
// functions); without AMX, its instructions are trapped. So the usual path of detection, permission and self check
// leads to the native set on any machine with AVX-512.

#include <gtest/gtest.h>

#include "base/cpu.h"
#include "unit/amx/trap.h"

namespace quire {

CpuFeatures real_cpu_features() asm("__real__ZN5quire12cpu_featuresEv");
CpuFeatures wrapped_cpu_features() asm("__wrap__ZN5quire12cpu_featuresEv");
bool real_permit_tiles() asm("__real__ZN5quire12permit_tilesEv");
bool wrapped_permit_tiles() asm("__wrap__ZN5quire12permit_tilesEv");

CpuFeatures wrapped_cpu_features() {
  CpuFeatures only;
  only.amx = real_cpu_features().avx512;
  return only;
}

bool wrapped_permit_tiles() {
  if (real_cpu_features().amx) return real_permit_tiles();
  testing::trap_amx();
  return true;
}

}  // namespace quire

int main(int argc, char** argv) {
  GTEST_FLAG_SET(filter, "-*/reference");  // unit_kernels tests it; --gtest_filter replaces this filter
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
