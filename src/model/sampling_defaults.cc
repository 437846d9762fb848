#include "model/sampling_defaults.h"

#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"
#include "model/registry.h"

namespace quire {
namespace {

struct SamplingKeys {
  const char *temperature, *top_k, *top_p, *min_p, *repetition_penalty;
};
constexpr SamplingKeys kGgufKeys = {"general.sampling.temp", "general.sampling.top_k", "general.sampling.top_p",
                                    "general.sampling.min_p", "general.sampling.penalty_repeat"};
constexpr SamplingKeys kHfKeys = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};

// Source: Gguf or JsonField.
template <class Source>
class Reader {
 public:
  Reader(const Source& source, std::string file) : source_(source), file_(std::move(file)) {}

  SamplingRecommendation read(const SamplingKeys& keys) {
    constexpr float kMax = std::numeric_limits<float>::max();
    SamplingDefaults& v = found_.values;
    v.temperature = number<float>(keys.temperature, 0, kMax);
    v.top_k = number<int>(keys.top_k, -1, std::numeric_limits<int>::max());
    v.top_p = number<float>(keys.top_p, 0, 1);
    v.min_p = number<float>(keys.min_p, 0, 1);
    v.repetition_penalty = number<float>(keys.repetition_penalty, 0.01f, 100);
    return std::move(found_);
  }

 private:
  // The ranges are those of validate(SamplingParams).
  template <class T>
  std::optional<T> number(const char* key, T low, T high) {
    if (!source_.has(key)) return std::nullopt;
    try {
      const T value = source_.template get<T>(key);
      if (value >= low && value <= high) return value;
      found_.warnings.push_back(fmt::format("{}: {} is {}, which is out of range; ignored", file_, key, value));
    } catch (const Error& e) {
      found_.warnings.push_back(fmt::format("{}; ignored", e.what()));
    }
    return std::nullopt;
  }

  const Source& source_;
  std::string file_;
  SamplingRecommendation found_;
};

SamplingRecommendation read_checkpoint(const Checkpoint& checkpoint) {
  if (const Gguf* gguf = checkpoint.gguf()) return Reader(*gguf, gguf->file()).read(kGgufKeys);
  const std::optional<JsonField>& generation = checkpoint.hf()->generation;
  if (!generation) return {};
  // Without do_sample, transformers decodes greedily and the other keys have no effect.
  const auto do_sample = generation->find("do_sample");
  if (!do_sample || do_sample->json() != true) return {};
  return Reader(*generation, generation->where()).read(kHfKeys);
}

}  // namespace

SamplingRecommendation sampling_defaults(const Checkpoint& checkpoint) {
  SamplingRecommendation found = read_checkpoint(checkpoint);
  if (found.values != SamplingDefaults{}) return found;
  for (const RegisteredModel& known : registered_models()) {
    if (checkpoint.path().filename() == known.file) found.values = known.sampling;
  }
  return found;
}

}  // namespace quire
