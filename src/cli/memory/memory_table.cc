#include "cli/memory/memory_table.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "engine/memory_budget.h"

namespace quire {

using nlohmann::ordered_json;

ordered_json memory_json(const MemoryPlan& plan) {
  ordered_json rows = ordered_json::array();
  for (const MemoryRow& row : plan.rows())
    rows.push_back({{"what", std::string(row.what)}, {"bytes", row.bytes}, {"note", row.note}});
  return {{"rows", std::move(rows)},
          {"bytes", plan.total()},
          {"budget_bytes", plan.budget},
          {"max_model_len", plan.cache.max_model_len}};
}

std::vector<std::string> memory_table(const ordered_json& memory) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& what, const ordered_json& bytes, const std::string& note) {
    const size_t mib = (bytes.get<size_t>() + kMiB - 1) / kMiB;
    lines.push_back(fmt::format("{:<12}{:>8} MiB{}{}", what, mib, note.empty() ? "" : "  ", note));
  };
  for (const ordered_json& row : memory["rows"]) add(row["what"], row["bytes"], row["note"]);
  add("total", memory["bytes"],
      fmt::format("of {} MiB available (set with --memory)", memory["budget_bytes"].get<size_t>() / kMiB));
  return lines;
}

}  // namespace quire
