#include "cuda/linear/formats/launch.inc.h"

namespace quire::cuda {

template void launch_linear<Codes::kU5>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kU6>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kI8>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
