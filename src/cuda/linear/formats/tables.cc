#include "cuda/linear/formats/launch.inc.h"

namespace quire::cuda {

template void launch_linear<Codes::kTable4>(Stream&, const LinearLaunch&);
template void launch_linear<Codes::kFloat4>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
