#include "cli/memory/memory_table.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "engine/memory_budget.h"

namespace quire {

using nlohmann::ordered_json;

ordered_json memory_json(const MemoryPlan& plan) {
  ordered_json rows = ordered_json::array();
  for (const MemoryRow& row : plan.rows())
    rows.push_back({{"what", std::string(row.what)}, {"bytes", row.bytes}, {"note", row.note}});
  ordered_json json = {{"rows", std::move(rows)},
                       {"bytes", plan.total()},
                       {"budget_bytes", plan.budget},
                       {"budget_flag", plan.own_memory ? "--gpu-memory-utilization" : "--memory"},
                       {"max_model_len", plan.cache.max_model_len}};
  if (plan.devices > 1) json["devices"] = plan.devices;
  if (const auto& host = plan.host)
    json["host"] = {
        {"bytes", host->total()},     {"budget_bytes", host->budget},          {"weight_bytes", host->weights},
        {"cache_bytes", host->cache}, {"activation_bytes", host->activations}, {"other_bytes", host->other}};
  if (plan.cpu_moe_layers > 0) json["host"]["cpu_moe_layers"] = plan.cpu_moe_layers;
  for (const StagePlan& stage : plan.stages)
    json["stages"].push_back({{"first_layer", stage.layers.begin},
                              {"layers", stage.layers.end - stage.layers.begin},
                              {"weight_bytes", stage.weights},
                              {"cache_bytes", stage.cache},
                              {"sent_bytes_per_token", stage.sent_bytes}});
  return json;
}

std::vector<std::string> memory_table(const ordered_json& memory) {
  std::vector<std::string> lines;
  const auto mib = [](const ordered_json& bytes) { return (bytes.get<size_t>() + kMiB - 1) / kMiB; };
  const auto add = [&](const std::string& what, const ordered_json& bytes, const std::string& note) {
    lines.push_back(fmt::format("{:<12}{:>8} MiB{}{}", what, mib(bytes), note.empty() ? "" : "  ", note));
  };
  for (const ordered_json& row : memory["rows"]) add(row["what"], row["bytes"], row["note"]);
  const bool has_host = memory.contains("host");
  add("total", memory["bytes"],
      fmt::format(
          "of {} MiB available (set with {}){}", memory["budget_bytes"].get<size_t>() / kMiB,
          memory["budget_flag"].get<std::string>(),
          memory.contains("devices") ? fmt::format(", on each of {} devices", memory["devices"].get<int>()) : ""));
  if (has_host) {
    const ordered_json& host = memory["host"];
    add("on the host", host["bytes"],
        fmt::format("of {} MiB available (set with --memory): weights {}, KV cache {}, activations {}, other {}",
                    host["budget_bytes"].get<size_t>() / kMiB, mib(host["weight_bytes"]), mib(host["cache_bytes"]),
                    mib(host["activation_bytes"]), mib(host["other_bytes"])));
    if (host.contains("cpu_moe_layers"))
      lines.push_back(fmt::format("the CPU: the experts of layers {} to {}",
                                  memory.contains("stages") ? memory["stages"][1]["first_layer"].get<int>() : 0,
                                  host["cpu_moe_layers"].get<int>() - 1));
  }
  if (!memory.contains("stages")) return lines;
  int number = 0;
  for (const ordered_json& stage : memory["stages"]) {
    const int first = stage["first_layer"], last = first + stage["layers"].get<int>() - 1;
    const size_t sent = stage["sent_bytes_per_token"];
    const int index = number++;
    const std::string whose = !has_host ? fmt::format("stage {}", index) : index == 0 ? "the CPU" : "the device";
    lines.push_back(fmt::format("{}: layers {} to {}, weights {} MiB, KV cache {} MiB{}", whose, first, last,
                                mib(stage["weight_bytes"]), mib(stage["cache_bytes"]),
                                sent > 0 ? fmt::format(", sends {} bytes per token", sent) : ""));
  }
  return lines;
}

}  // namespace quire
