#include "cuda/linear/many_rows/launch.inc.h"

namespace quire::cuda {

template void launch_many_rows<Codes::kTable4>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kFloat4>(Stream&, const LinearLaunch&);
template void launch_many_rows<Codes::kE4M3>(Stream&, const LinearLaunch&);

}  // namespace quire::cuda
