#include "engine/drafting/drafter_facts.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "model/families.h"
#include "model/registry.h"
#include "model/weights.h"
#include "speculate/network/eagle.h"
#include "speculate/network/feature_predictor.h"
#include "speculate/network/medusa.h"
#include "speculate/network/mtp.h"

namespace quire {
namespace {

constexpr int kFrequentTokens = 8192;  // SmolLM2: 97 % of the tokens of its answers

void take(FeatureTotals totals, DrafterFacts& facts) {
  facts.layers = std::move(totals.config);
  facts.weight_bytes = totals.bytes;
  if (totals.output.rows > 0) facts.output = totals.output;
}

void read_model(DrafterKind kind, const EngineOptions& o, const Checkpoint& checkpoint, const ModelConfig& target,
                DrafterFacts& facts) {
  switch (kind) {
    case DrafterKind::kEarlyExit:
      first_layers(o, target);
      return;
    case DrafterKind::kEagle:
      return take(check_eagle(o.eagle_head, target), facts);
    case DrafterKind::kMtp:
      return take(check_mtp(checkpoint, target), facts);
    case DrafterKind::kMedusa: {
      const MedusaTotals totals = check_medusa(o.medusa_heads, target);
      facts.heads = totals.heads;
      facts.weight_bytes = totals.bytes;
      return;
    }
    default: {
      const Checkpoint small = Checkpoint::open(resolve_model(o.draft_model));
      facts.layers = read_model_config(small);
      check_small_model(o, *facts.layers, target);
      const WeightTotals totals = check_weights(small, *facts.layers);
      facts.weight_bytes = totals.bytes;
      facts.output = totals.output;
    }
  }
}

}  // namespace

int drafted_vocabulary(const EngineOptions& o, const ModelConfig& target) {
  return o.draft_vocabulary.empty() ? target.vocab : std::min(kFrequentTokens, target.vocab);
}

int first_layers(const EngineOptions& o, const ModelConfig& target) {
  const int layers = static_cast<int>(target.layers.size());
  const int first = o.early_exit_layers > 0 ? o.early_exit_layers : layers * 4 / 5;
  if (first >= layers || !can_exit_after(target, first))
    throw invalid("--early-exit-layers {} is not possible; the model has {} layers{}", first, layers,
                  first < layers ? ", and the next one needs more than this one's result" : "");
  if (cache_layout(target, KvType::kBf16).state_bytes() > 0)
    throw unsupported("--speculative early-exit does not support models with recurrent layers; use ngram");
  return first;
}

void check_small_model(const EngineOptions& o, const ModelConfig& draft, const ModelConfig& target) {
  if (draft.vocab != target.vocab)
    throw invalid("--draft-model {} has {} tokens, but the model has {}; use one with the same vocabulary",
                  quote(o.draft_model), draft.vocab, target.vocab);
  if (!draft.has_logits || cache_layout(draft, KvType::kBf16).state_bytes() > 0)
    throw unsupported("--draft-model {}: its layers must all be attention, and it must generate text",
                      quote(o.draft_model));
}

DrafterFacts read_drafter_facts(const EngineOptions& o, const Checkpoint& checkpoint, const ModelConfig& target,
                                const PackedMatrix& target_output) {
  DrafterFacts facts;
  facts.named = named_drafters(o, has_predicting_layer(checkpoint, target));
  facts.output = target_output;
  if (!o.speculative_corpus.empty() && facts.named.any()) {
    std::error_code unreadable;  // loading says it better
    const uintmax_t size = std::filesystem::file_size(o.speculative_corpus, unreadable);
    if (!unreadable) facts.corpus_bytes = size;
  }
  if (!facts.named.model) return facts;
  try {
    read_model(*facts.named.model, o, checkpoint, target, facts);
  } catch (const Error& e) {
    if (o.speculative != Speculation::kAuto || facts.named.model != DrafterKind::kMtp) throw;
    facts.problem = e.what();
    facts.drop_model();
  }
  return facts;
}

size_t draft_weight_bytes(const DrafterFacts& facts, const EngineOptions& o, const ModelConfig& target) {
  if (!facts.named.model) return 0;
  size_t bytes = facts.weight_bytes;
  if (!o.draft_vocabulary.empty()) {
    const PackedMatrix& all = facts.output;
    bytes += describe_packed(all.format, all.factor, drafted_vocabulary(o, target), all.cols).bytes();
  }
  return bytes;
}

size_t draft_network_bytes(const DrafterFacts& facts, const ModelConfig& target, const DecoderLimits& limits,
                           const OperationsBytes& operations_bytes) {
  if (!facts.named.model) return 0;
  switch (*facts.named.model) {
    case DrafterKind::kEarlyExit:
      return 0;  // it computes with the target's activations
    case DrafterKind::kMedusa:
      return Medusa::memory_bytes(facts.heads, target, limits.max_logits) +
             operations_bytes(Medusa::limits(facts.heads, target, limits.max_logits));
    case DrafterKind::kEagle:
    case DrafterKind::kMtp:
      return FeaturePredictor::memory_bytes(*facts.layers, limits) +
             operations_bytes(FeaturePredictor::operation_limits(*facts.layers, limits));
    default:
      return Decoder::memory_bytes(*facts.layers, limits) + operations_bytes(operation_limits(*facts.layers, limits));
  }
}

}  // namespace quire
