#include "server/api/live/snapshot_json.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <span>

#include "json/quote.h"

namespace quire {
namespace {

// In the order of SequenceSnapshot::Phase.
constexpr std::array<std::string_view, 5> kPhaseNames{"waiting", "preempted", "loading", "prefill", "decode"};

template <class... A>
void append(std::string& out, fmt::format_string<A...> format, A&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<A>(arguments)...);
}

void append_model(const WatchedModel& model, std::string& out) {
  const ModelInfo& i = model.info;
  out += "\"model\":{";
  const auto text = [&](std::string_view name, std::string_view value) {
    append(out, "\"{}\":", name);
    append_json_string(value, out);
    out += ',';
  };
  text("name", model.name);
  text("architecture", i.architecture);
  text("quantization", i.quantization);
  text("kernels", i.kernels);
  text("activations", i.activations);
  text("kv_cache_dtype", i.kv_cache_dtype);
  append(out,
         "\"threads\":{},\"layers\":{},\"hidden\":{},\"heads\":{},\"kv_heads\":{},\"head_dim\":{},\"vocab_size\":{},"
         "\"max_model_len\":{},\"max_running\":{},\"generates\":{},",
         i.threads, i.layers, i.hidden, i.heads, i.kv_heads, i.head_dim, i.vocab_size, i.max_model_len,
         model.max_running, i.generates);
  append(out,
         "\"page_tokens\":{},\"kv_groups\":{},\"kv_bytes_per_token\":{},\"parameters\":{},\"weight_bytes\":{},"
         "\"decode_bytes\":{}}},",
         i.page_tokens, i.kv_groups, i.kv_bytes_per_token, i.parameters, i.weight_bytes, i.decode_bytes);
}

void append_counters(const EngineSnapshot& snapshot, const EngineStats& s, std::string& out) {
  append(out,
         "\"counters\":{{\"running\":{},\"waiting\":{},\"steps\":{},\"prompt_tokens\":{},\"generated_tokens\":{},"
         "\"finished\":{},\"preemptions\":{},",
         snapshot.running, snapshot.waiting, s.steps, s.prompt_tokens, s.generated_tokens, s.finished_requests,
         s.preemptions);
  append(out,
         "\"prefix_query_tokens\":{},\"prefix_hit_tokens\":{},\"pages_evicted\":{},\"pages_loaded\":{},"
         "\"drafted_tokens\":{},\"accepted_tokens\":{},",
         s.prefix_query_tokens, s.prefix_hit_tokens, s.pages_evicted, s.pages_loaded, s.drafted_tokens,
         s.accepted_tokens);
  append(out, "\"pages_used\":{},\"pages_cached\":{},\"slots_unused\":{}}},", s.kv_pages_used, s.kv_pages_idle,
         s.kv_slots_unused);
}

void append_sequences(std::span<const SequenceSnapshot> sequences, std::string& out) {
  out += "\"sequences\":[";
  for (const SequenceSnapshot& s : sequences) {
    if (&s != sequences.data()) out += ',';
    append(out,
           "{{\"id\":{},\"request\":{},\"choice\":{},\"phase\":\"{}\",\"prompt\":{},\"cached\":{},\"computed\":{},"
           "\"generated\":{},\"most\":{},\"units\":{},\"drafted\":{},\"accepted\":{},",
           s.id, s.request, s.choice, kPhaseNames[static_cast<size_t>(s.phase)], s.prompt_tokens, s.cached_tokens,
           s.computed, s.generated, s.max_new_tokens, s.units, s.drafted, s.accepted);
    append(out, "\"submitted\":{:.4f},\"started\":{:.4f},\"first_token\":{:.4f}}}", s.submitted, s.started,
           s.first_token);
  }
  out += "],";
}

void append_steps(const EngineSnapshot& snapshot, uint64_t after, std::string& out) {
  out += "\"steps\":[";
  bool first = true;
  for (const StepSnapshot& step : snapshot.steps) {
    if (step.number <= after) continue;
    if (!std::exchange(first, false)) out += ',';
    append(out, "{{\"n\":{},\"at\":{:.5f},\"s\":{:.6f},\"decode\":{},\"prompt\":{},\"bytes\":{:.0f},\"macs\":{:.0f},",
           step.number, step.began, step.duration, step.decode_rows, step.prompt_rows, step.bytes, step.multiply_adds);
    out += "\"parts\":[";
    const auto parts = std::span(snapshot.parts).subspan(step.first_part, step.parts);
    for (const StepPart& p : parts) {
      append(out, "{}[{},{},{},{},{},{}]", &p == parts.data() ? "" : ",", p.sequence, p.first, p.rows, p.drafts,
             p.tokens, p.decodes ? 1 : 0);
    }
    out += "]}";
  }
  out += "],";
}

// Equal neighbours are one run: count, use, owner (-1: nobody, or not listed), users.
void append_pool(const PoolMap& pool, std::string& out) {
  append(out,
         "\"pool\":{{\"units\":{},\"units_per_cell\":{},\"cells\":{},\"host_pages\":{},\"disk_pages\":{},\"runs\":[",
         pool.units, pool.units_per_cell, pool.cells.size(), pool.host_pages, pool.disk_pages);
  for (size_t begin = 0; begin < pool.cells.size();) {
    const PoolCell& cell = pool.cells[begin];
    size_t end = begin + 1;
    while (end < pool.cells.size() && pool.cells[end] == cell) ++end;
    append(out, "{}{},{},{},{}", begin == 0 ? "" : ",", end - begin, static_cast<int>(cell.use),
           cell.owner == PoolCell::kNobody ? -1 : static_cast<int>(cell.owner), cell.users);
    begin = end;
  }
  out += "]},";
}

void append_prefixes(const PrefixShape& prefixes, std::string& out) {
  append(out, "\"prefixes\":{{\"pages\":{},\"complete\":{},\"branches\":[", prefixes.pages, prefixes.complete);
  for (const PrefixBranch& b : prefixes.branches)
    append(out, "{}[{},{},{}]", &b == prefixes.branches.data() ? "" : ",", b.parent, b.pages, b.users);
  out += "]}";
}

}  // namespace

std::string snapshot_json(const EngineSnapshot& snapshot, const EngineStats& stats, const WatchedModel& model,
                          uint64_t after) {
  std::string out;
  append(out, "{{\"number\":{},\"time\":{:.4f},\"step_target\":{:.6g},", snapshot.number, snapshot.time,
         snapshot.step_target);
  append(out, "\"limits\":{{\"read_bytes\":{:.6g},\"multiply_adds\":{:.6g}}},", model.read_bandwidth,
         model.multiply_rate);
  if (after == 0) append_model(model, out);
  append_counters(snapshot, stats, out);
  append_sequences(snapshot.sequences, out);
  append_steps(snapshot, after, out);
  append_pool(snapshot.pool, out);
  append_prefixes(snapshot.prefixes, out);
  out += '}';
  return out;
}

}  // namespace quire
