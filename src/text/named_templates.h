// Chat templates by name. Files, and users of --chat-template, give a name where llama.cpp has a template built in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The Jinja source of a well-known template: "chatml". nullopt: no template has this name.
std::optional<std::string> named_template(std::string_view name);
std::vector<std::string_view> template_names();

// `source` itself if it is a template, or the template whose name it is; nullopt if it is empty. A text without any
// expression shows no message, so it is an Error unless it is a known name. `where` says in errors where it stands.
std::optional<std::string> template_or_named(const std::string& source, const std::string& where);

}  // namespace quire
