#include "cuda/linear/formats/launch.inc.h"

namespace quire::cuda {

template void launch_linear<Codes::kE4M3>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kBf16>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kF16>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kF32>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
