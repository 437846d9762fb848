#include "cuda/linear/formats/launch.inc.h"

namespace quire::cuda {

template void launch_linear<Codes::kU4>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
