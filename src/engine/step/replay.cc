#include "engine/step/replay.h"

#include <algorithm>

#include "base/error.h"
#include "engine/dtype_names.h"
#include "engine/ranks/ranks_executor.h"
#include "engine/step/local_executor.h"
#include "kv/unit_pool.h"

namespace quire {
namespace {

template <class Names>
auto value_of(const Names& names, const std::string& name, const char* field) {
  const auto value = find_value(names, name);
  if (!value) throw invalid("the recording's {} is {}, which is not known", field, name);
  return *value;
}

Activations activations_of(const RecordingHeader& header) {
  return value_of(kActivationsNames, header.activations, "activations");
}

int drafted_rows(const ForwardInput& input) {
  int drafted = 0;
  for (const Span& span : input.spans) drafted += span.drafts;
  return drafted;
}

}  // namespace

Replay::Replay(const RecordingHeader& header, const Model& model)
    : header_(header),
      config_(model.config),
      layout_(cache_layout(model.config, value_of(kKvTypeNames, header.kv_cache_dtype, "kv_cache_dtype"))) {}

Replay::Replay(const RecordingHeader& header, const Model& model, Runtime& runtime, int ranks) : Replay(header, model) {
  const CacheShape shape{layout_, header.units, header.states};
  if (ranks > 1) {
    ranks_ = std::make_unique<RankGroup>(runtime.cpu, ranks, runtime.team.size());
    const std::vector<const Weights*> weights(static_cast<size_t>(ranks), &model.weights);
    executor_ =
        std::make_unique<RanksExecutor>(model.config, weights, shape, *ranks_, activations_of(header), header.limits);
  } else {
    executor_ = std::make_unique<LocalExecutor>(model.config, model.weights, shape, runtime.backend(),
                                                activations_of(header), header.limits);
  }
}

Replay::Replay(const RecordingHeader& header, const Model& model, Runtime& runtime, ProcessGroup& processes,
               double patience)
    : Replay(header, model) {
  executor_ = std::make_unique<ProcessesExecutor>(processes, patience, model.config, model.weights,
                                                  CacheShape{layout_, header.units, header.states}, runtime.cpu,
                                                  runtime.team, activations_of(header), header.limits);
}

void Replay::check(SequenceId sequence, const Span& span) const {
  const auto refuse = [&](const char* what) {
    return invalid("sequence {} of a recorded step: {}", static_cast<uint64_t>(sequence), what);
  };
  const int end = span.position + span.rows;
  if (end > header_.limits.max_positions) throw refuse("its positions exceed max_positions");
  const auto groups = layout_.groups();
  if (span.tables.size() != groups.size()) throw refuse("it needs a page table for each group of layers");
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::vector<int32_t>& table = span.tables[group];
    const auto pages = static_cast<size_t>((end + kPageTokens - 1) / kPageTokens);
    if (table.size() < pages) throw refuse("its page table is shorter than its tokens");
    for (auto page = static_cast<size_t>(first_visible_page(groups[group].window, span.position)); page < pages; ++page)
      if (table[page] < 0 || table[page] >= header_.units) throw refuse("its page table names a unit that is none");
  }
  if ((span.state >= 0) != (header_.states > 0) || span.state >= header_.states)
    throw refuse("its state is none of the cache's");
  if (span.drafts >= span.rows) throw refuse("it has nothing but drafts");
  int before = -1;
  for (const StateCopy& copy : span.state_copies) {
    if (copy.slot < 0 || copy.slot >= header_.states || copy.row < before || copy.row >= span.rows)
      throw refuse("a copy of its state is out of range");
    before = copy.row;
  }
  if (span.adapter >= 0) throw refuse("it has an adapter");
  if (span.rope_variant > header_.limits.max_positions) throw refuse("its rope_variant is out of range");
}

void Replay::check(const RecordedStep& step) const {
  const ForwardInput& input = step.forward.input;
  if (input.by_drafter) throw invalid("a recorded step is a drafter's");
  if (input.rows.empty() || std::cmp_greater(input.rows.size(), header_.limits.max_rows))
    throw invalid("a recorded step has {} rows; it must have 1 to {}", input.rows.size(), header_.limits.max_rows);
  const auto wanted = static_cast<size_t>(std::ranges::count_if(input.rows, &Row::wants_logits));
  if (wanted != step.logits.size() || std::cmp_greater(wanted, header_.limits.max_logits))
    throw invalid("a recorded step has {} rows with logits, and hashes of {}", wanted, step.logits.size());
  if (wanted > 0 && !config_.has_logits) throw invalid("a recorded step wants logits, which the model does not have");
  if (std::ranges::count_if(input.rows, &Row::wants_hidden) > header_.limits.max_hidden)
    throw invalid("a recorded step wants more hidden states than its limits allow");
  for (const Row& row : input.rows) {
    if (row.token < 0 || row.token >= config_.vocab)
      throw invalid("a recorded step has the token {}; the model's are 0 to {}", row.token, config_.vocab - 1);
    if (row.segment >= std::max(1, config_.segments)) throw invalid("a recorded step has a row of a second text");
  }
  for (const PooledRows& pooled : input.pooled) {
    if (std::cmp_not_equal(pooled.sum.size(), pooled.apart ? 0 : config_.hidden))
      throw invalid("a recorded step pools vectors of {}; the model's have {}", pooled.sum.size(), config_.hidden);
  }
  for (const CacheCopy& copy : input.changes.copies) {
    const int most = copy.of_state ? header_.states : header_.units;
    if (copy.from >= most || copy.to >= most || copy.from == copy.to)
      throw invalid("a recorded step copies from {} to {} in a cache of {}", copy.from, copy.to, most);
  }
  int free_row = 0;
  for (const StateAdvance& a : input.changes.advances) {
    if (a.slot < 0 || a.slot >= header_.states || a.row < free_row || a.rows < 1 || a.row > drafted_ ||
        a.rows > drafted_ - a.row)
      throw invalid("a recorded step advances state {} by drafts that the step before does not have", a.slot);
    if (std::ranges::count(input.changes.advances, a.slot, &StateAdvance::slot) > 1)
      throw invalid("a recorded step advances state {} twice", a.slot);
    free_row = a.row + a.rows;
  }
  for (size_t i = 0; i < input.spans.size(); ++i) check(input.sequences[i], input.spans[i]);
  if (const int drafted = drafted_rows(input); drafted > header_.limits.max_drafted)
    throw invalid("a recorded step has {} drafts; it may have {}", drafted, header_.limits.max_drafted);
}

std::optional<ReplayDifference> Replay::run(const RecordedStep& step) {
  check(step);
  const ForwardInput& input = step.forward.input;
  drafted_ = drafted_rows(input);
  executor_->launch(input);
  const std::span<const float> logits = executor_->wait().logits;
  rows_ += input.rows.size();
  logits_ += step.logits.size();
  const auto vocab = static_cast<size_t>(config_.vocab);
  size_t row = 0;  // in the logits
  for (size_t i = 0; i < input.spans.size(); ++i) {
    const Span& span = input.spans[i];
    for (int k = 0; k < span.rows; ++k) {
      if (!input.rows[static_cast<size_t>(span.row + k)].wants_logits) continue;
      const auto now = logits.subspan(row * vocab, vocab);
      if (hash_of(now) == step.logits[row++]) continue;
      const auto sampled = std::ranges::find(step.sampled, input.sequences[i], &RecordedSample::sequence);
      return ReplayDifference{.sequence = input.sequences[i],
                              .position = span.position + k,
                              .recorded = sampled != step.sampled.end() ? sampled->tokens : TokenIds{},
                              .most_probable = static_cast<TokenId>(std::ranges::max_element(now) - now.begin())};
    }
  }
  return std::nullopt;
}

}  // namespace quire
