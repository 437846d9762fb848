#include "cuda/linear/formats/launch.inc.h"

namespace quire::cuda {

template void launch_linear<Codes::kU2>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kU3>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
