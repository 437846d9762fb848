#include "cuda/linear/many_rows/launch.inc.h"

namespace quire::cuda {

template void launch_many_rows<Codes::kBf16>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kF16>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kF32>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
