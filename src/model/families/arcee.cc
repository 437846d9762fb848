// Arcee (AFM): Llama with plain MLPs of squared ReLU.

#include "model/families.h"

namespace quire::arcee {
namespace {

ModelConfig from_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_nonlinearity(c, nonlinearity_of(s), false);
  return c;
}
ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  set_nonlinearity(c, Nonlinearity::kRelu2, false);
  return c;
}

constexpr std::string_view kNames[] = {"ArceeForCausalLM"};
constexpr std::string_view kIgnored[] = {"rope_freqs.weight"};

}  // namespace

extern const Family kArcee = {"arcee", kNames, "arcee", from_hf, from_gguf, {}, {.ignored = kIgnored}};

}  // namespace quire::arcee
