#include "engine/single_sequence.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace quire {

SingleSequence::SingleSequence(LoadedModel& model) : model_(model), pages_(static_cast<size_t>(model.info.kv_pages)) {
  std::iota(pages_.begin(), pages_.end(), 0);
}

std::span<float> SingleSequence::append(std::span<const TokenId> ids, bool all_logits) {
  const auto count = static_cast<int>(ids.size());
  if (tokens_ + count > model_.info.max_model_len)
    throw invalid("{} tokens do not fit into the context of {}", tokens_ + count, model_.info.max_model_len);
  rows_.clear();
  for (int i = 0; i < count; ++i) {
    const TokenId id = ids[static_cast<size_t>(i)];
    if (id < 0 || id >= model_.config.vocab)
      throw invalid("token id {} is outside the vocabulary of {}", id, model_.config.vocab);
    rows_.push_back({id, tokens_ + i, all_logits || i + 1 == count});
  }
  if (tokens_ == 0) rope_variant_ = rope_variant(model_.config.ropes, count);
  const Span span{.row = 0,
                  .rows = count,
                  .position = tokens_,
                  .tables = {&pages_, 1},
                  .rope_variant = rope_variant_};
  tokens_ += count;
  return model_.decoder->forward({rows_, {&span, 1}});
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace quire
