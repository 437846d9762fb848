#include "engine/single_sequence.h"

#include <algorithm>

#include "base/error.h"

namespace quire {

SingleSequence::SingleSequence(const Computed& by, int adapter)
    : by_(by),
      adapter_(adapter),
      pool_(static_cast<uint32_t>(by.cache.units), kPageTokens),
      pages_(static_cast<int>(by.cache.layout.groups().size())) {}

SingleSequence::SingleSequence(LoadedModel& model, int adapter)
    : SingleSequence({model.executor(), model.target.config, model.cache, model.info.max_model_len}, adapter) {}

void SingleSequence::clear() { pages_.release(pool_); }

std::span<float> SingleSequence::append(std::span<const TokenId> ids, bool all_logits) {
  const auto count = static_cast<int>(ids.size());
  const int position = pages_.tokens();
  if (position + count > by_.max_model_len)
    throw invalid("{} tokens do not fit into the context of {}", position + count, by_.max_model_len);
  input_.rows.clear();
  for (int i = 0; i < count; ++i) {
    const TokenId id = ids[static_cast<size_t>(i)];
    if (id < 0 || id >= by_.config.vocab)
      throw invalid("token id {} is outside the vocabulary of {}", id, by_.config.vocab);
    input_.rows.push_back({id, position + i, all_logits || i + 1 == count});
  }
  const auto groups = by_.cache.layout.groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    const int first = first_visible_page(groups[group].window, position);
    pages_.release_before(pool_, static_cast<int>(group), std::min(first, pages_.pages()));
  }
  if (!pages_.grow(pool_, count))
    throw no_resource("{} tokens at once do not fit into the KV cache; raise --kv-cache-size or compute fewer", count);
  if (position == 0) rope_variant_ = rope_variant(by_.config.ropes, count);
  input_.spans.assign(1, {.row = 0,
                          .rows = count,
                          .position = position,
                          .tables = pages_.units(),
                          .state = by_.cache.states > 0 ? 0 : -1,
                          .rope_variant = rope_variant_,
                          .adapter = adapter_});
  by_.executor.launch(input_);
  return by_.executor.wait().logits;
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace quire
