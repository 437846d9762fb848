#include "quantize/allocation/allocation_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files/whole_file.h"
#include "base/text/quote.h"
#include "json/field.h"

namespace quire {
namespace {

constexpr std::string_view kFormat = "quire-types-of-tensors";
constexpr int kVersion = 1;
constexpr int64_t kMostNumber = int64_t{1} << 53;  // JSON numbers are exact to here
constexpr size_t kMostGroups = 1 << 20;

TensorType read_type(const JsonField& field) {
  const auto type = tensor_type_from_name(field.string());
  if (!type || info(*type).ggml_id < 0)
    throw field.error("{} is not a type of GGUF files, such as Q4_K", quote(field.string()));
  return *type;
}

uint64_t read_count(const JsonField& field) { return static_cast<uint64_t>(field.integer(0, kMostNumber)); }

TypeChoice read_choice(const JsonField& field) {
  TypeChoice choice{.type = read_type(field.at("type")), .bytes = read_count(field.at("bytes"))};
  constexpr double kMost = 1e300;
  choice.error = field.at("error").number(0, kMost);
  choice.divergence = field.at("divergence").number(0, kMost);
  choice.measured = field.get_or("measured", false);
  return choice;
}

GroupAllocation read_group(const JsonField& field, std::set<std::string>& named) {
  GroupAllocation group;
  for (const JsonField& tensor : field.at("tensors").array(kMostGroups).elements()) {
    group.tensors.push_back(tensor.string());
    if (!named.insert(group.tensors.back()).second)
      throw tensor.error("{} is named twice", quote(group.tensors.back()));
  }
  if (group.tensors.empty()) throw field.at("tensors").error("must not be empty");
  group.name = field.get_or<std::string>("name", group.tensors.front());
  const TensorType type = read_type(field.at("type"));
  if (const auto elements = field.find("elements")) group.elements = read_count(*elements);
  if (const auto choices = field.find("choices")) {
    for (const JsonField& choice : choices->array(tensor_types().size()).elements())
      group.choices.push_back(read_choice(choice));
    const auto chosen = std::ranges::find(group.choices, type, &TypeChoice::type);
    if (chosen == group.choices.end()) throw field.at("type").error("{} is not among the choices", name(type));
    group.chosen = static_cast<size_t>(chosen - group.choices.begin());
    return group;
  }
  group.choices.push_back({.type = type});
  return group;
}

nlohmann::ordered_json group_json(const GroupAllocation& group) {
  nlohmann::ordered_json out{{"name", group.name},
                             {"tensors", group.tensors},
                             {"type", name(group.choice().type)},
                             {"elements", group.elements},
                             {"choices", nlohmann::ordered_json::array()}};
  for (const TypeChoice& choice : group.choices) {
    out["choices"].push_back({{"type", name(choice.type)},
                              {"bytes", choice.bytes},
                              {"error", choice.error},
                              {"divergence", choice.divergence},
                              {"measured", choice.measured}});
  }
  return out;
}

}  // namespace

void write_allocation(const Allocation& allocation, const std::filesystem::path& path) {
  nlohmann::ordered_json out{{"format", kFormat},
                             {"version", kVersion},
                             {"bits_per_weight", allocation.bits_per_weight()},
                             {"divergence", allocation.divergence()},
                             {"elements", allocation.elements},
                             {"other_bytes", allocation.other_bytes},
                             {"text", allocation.text},
                             {"chunks", allocation.chunks},
                             {"context", allocation.context},
                             {"groups", nlohmann::ordered_json::array()}};
  for (const GroupAllocation& group : allocation.groups) out["groups"].push_back(group_json(group));
  // Names of tensors and files may be ill-formed UTF-8, which JSON cannot hold.
  const std::string text = out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  write_whole_file(path, text);
}

Allocation read_allocation(const std::filesystem::path& path) {
  const JsonField root = JsonField::read(path).object();
  if (root.get_or<std::string>("format", "") != kFormat)
    throw invalid("{} is not a plan of types: \"format\" is not \"{}\"", path.string(), kFormat);
  root.at("version").integer(kVersion, kVersion);
  Allocation allocation;
  if (const auto elements = root.find("elements")) allocation.elements = read_count(*elements);
  if (const auto bytes = root.find("other_bytes")) allocation.other_bytes = read_count(*bytes);
  allocation.text = root.get_or<std::string>("text", "");
  allocation.chunks = static_cast<int>(root.has("chunks") ? root.at("chunks").integer(0, 1 << 30) : 0);
  allocation.context = static_cast<int>(root.has("context") ? root.at("context").integer(0, 1 << 30) : 0);
  std::set<std::string> named;
  for (const JsonField& group : root.at("groups").array(kMostGroups).elements())
    allocation.groups.push_back(read_group(group, named));
  if (allocation.groups.empty()) throw root.at("groups").error("must not be empty");
  return allocation;
}

bool has_choices(const Allocation& allocation) {
  return allocation.elements > 0 && std::ranges::all_of(allocation.groups, [](const GroupAllocation& group) {
           return std::ranges::all_of(group.choices, [](const TypeChoice& choice) { return choice.bytes > 0; });
         });
}

}  // namespace quire
