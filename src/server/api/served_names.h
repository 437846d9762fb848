// The names under which requests find a model.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Whether a request for `name` is for the model that has these names, and all names that begin with one of these prefixes.
inline bool has_name(std::span<const std::string> names, std::span<const std::string> prefixes, std::string_view name) {
  constexpr size_t kMaxName = 256;  // of those that only a prefix explains: answers repeat them
  if (std::ranges::find(names, name) != names.end()) return true;
  return name.size() <= kMaxName &&
         std::ranges::any_of(prefixes, [&](const std::string& prefix) { return name.starts_with(prefix); });
}

// Without Ollama's tag ":latest".
inline std::string_view untagged(std::string_view name) {
  constexpr std::string_view kTag = ":latest";
  return name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : name;
}

struct ServedNames {
  std::vector<std::string> names;     // the default first
  std::vector<std::string> prefixes;  // "claude-"

  // given: names, and patterns that end in *, which become prefixes. fallback: the names, if none is given.
  static ServedNames parse(const std::vector<std::string>& given, const std::vector<std::string>& fallback) {
    ServedNames parsed;
    for (const std::string& name : given) {
      if (name.ends_with('*')) {
        parsed.prefixes.push_back(name.substr(0, name.size() - 1));
      } else {
        parsed.names.push_back(name);
      }
    }
    if (parsed.names.empty()) parsed.names = fallback;
    return parsed;
  }

  bool has(std::string_view name) const { return std::ranges::find(names, name) != names.end(); }
  bool serves(std::string_view name) const { return has_name(names, prefixes, name); }
};

}  // namespace quire
