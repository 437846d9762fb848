#include "speculate/network/token_frequency.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "format/safetensors.h"

namespace quire {

TokenIds read_token_frequency(const std::filesystem::path& path, int vocab, int count) {
  const Safetensors file = Safetensors::open(path);
  constexpr std::string_view kName = "ids_by_frequency";
  const TensorView* view = file.find_tensor(kName);
  if (!view) throw invalid("{}: tensor {} is missing", file.file(), kName);
  if (view->type != TensorType::I32 || view->shape.size() != 1)
    throw invalid("{}: tensor {} has type {} and {} dimensions; it must be a list of I32", file.file(), kName,
                  name(view->type), view->shape.size());
  if (count < 1 || static_cast<uint64_t>(count) > view->shape[0])
    throw invalid("{}: {} output rows are wanted, but {} lists {} tokens; use 1 to {}", file.file(), count, kName,
                  view->shape[0], view->shape[0]);
  TokenIds ids(static_cast<size_t>(count));
  std::memcpy(ids.data(), view->bytes.data(), ids.size() * sizeof(TokenId));
  check_unchanged(file.mappings());
  std::vector<bool> seen(static_cast<size_t>(vocab));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab)
      throw invalid("{}: tensor {} has the id {} at index {}, outside the target's vocabulary of {}", file.file(),
                    kName, ids[i], i, vocab);
    if (seen[static_cast<size_t>(ids[i])])
      throw invalid("{}: tensor {} has the id {} twice", file.file(), kName, ids[i]);
    seen[static_cast<size_t>(ids[i])] = true;
  }
  return ids;
}

}  // namespace quire
