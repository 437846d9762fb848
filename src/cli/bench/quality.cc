#include "cli/bench/quality.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "cli/compare/distance_tally.h"
#include "engine/single_sequence.h"

namespace quire {
namespace {

constexpr size_t kWindow = 512;
constexpr int kLogitRows = 64;

TokenIds read_tokens(const LoadedModel& model, const std::string& file, size_t count) {
  if (!model.target.text.tokenizer)
    throw unsupported("{} has no vocabulary, so it cannot read a text", model.info.name);
  const Tokenizer& tokenizer = *model.target.text.tokenizer;
  TokenIds ids = tokenizer.encode(read_text_file(file), {.add_special = true, .parse_special = false});
  if (ids.size() < count)
    throw invalid("{} has only {} tokens; lower --quality-tokens from {}", file, ids.size(), count);
  ids.resize(count);
  for (size_t at = 0; at < count; at += kWindow) {
    if (tokenizer.adds_bos() && tokenizer.bos()) ids[at] = *tokenizer.bos();
  }
  return ids;
}

// Calls body(index, logits, next token) for each token; at the end of a window the next token is kNoToken.
void for_logits(LoadedModel& model, const TokenIds& ids, Progress& progress,
                const std::function<void(size_t, std::span<const float>, TokenId)>& body) {
  SingleSequence sequence(model);
  const auto vocab = static_cast<size_t>(model.target.config.vocab);
  for (size_t at = 0; at < ids.size();) {
    progress.step(at, ids.size());
    if (at % kWindow == 0) sequence.clear();
    const size_t end = std::min(ids.size(), at / kWindow * kWindow + kWindow);
    const size_t count = std::min<size_t>(kLogitRows, end - at);
    const auto logits = sequence.append(std::span(ids).subspan(at, count), true);
    for (size_t i = 0; i < count; ++i)
      body(at + i, logits.subspan(i * vocab, vocab), at + i + 1 < end ? ids[at + i + 1] : kNoToken);
    at += count;
  }
}

}  // namespace

Quality measure_quality(EngineOptions options, const std::string& file, int tokens, Progress& progress) {
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = kLogitRows;
  options.max_model_len = static_cast<int>(kWindow);
  Quality quality{.tokens = tokens, .activations = {}, .kv_cache_dtype = {}};
  TokenIds ids;
  std::vector<float> rounded;  // [tokens, vocab]
  {
    progress.stage("loading " + options.model);
    LoadedModel model(options, kLogitRows);
    quality.activations = model.info.activations;
    quality.kv_cache_dtype = model.info.kv_cache_dtype;
    ids = read_tokens(model, file, static_cast<size_t>(tokens));
    const size_t values = ids.size() * static_cast<size_t>(model.target.config.vocab);
    if (values * sizeof(float) > available_memory())
      throw no_resource("the logits of {} tokens need {} MiB of memory; lower --quality-tokens", tokens,
                        values * sizeof(float) >> 20);
    rounded.reserve(values);
    progress.stage("computing logits");
    for_logits(model, ids, progress, [&](size_t, std::span<const float> logits, TokenId) {
      rounded.insert(rounded.end(), logits.begin(), logits.end());
    });
  }
  options.activations = options.kv_cache_dtype = "f32";
  progress.stage("loading " + options.model + " again, in float32");
  LoadedModel model(options, kLogitRows);
  const auto vocab = static_cast<size_t>(model.target.config.vocab);
  DistanceTally tally;
  progress.stage("computing logits in float32");
  for_logits(model, ids, progress, [&](size_t index, std::span<const float> expected, TokenId next) {
    tally.add(expected, std::span<const float>(rounded).subspan(index * vocab, vocab), next, index % kWindow);
  });
  const DistanceSummary distance = tally.summary();
  quality.mean_kl = distance.mean_kl.value;
  quality.p99_kl = distance.p99_kl;
  quality.max_kl = distance.max_kl;
  quality.top1_agreement = distance.same_top.value;
  quality.perplexity = distance.perplexity.value;
  quality.float_perplexity = distance.reference_perplexity.value;
  return quality;
}

}  // namespace quire
