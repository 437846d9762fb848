#include "text/message_roles.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

constexpr const char *kFirstProbe = "quire_probe_31", *kSecondProbe = "quire_probe_47";

ordered_json probe_message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

ordered_json probe_call() {
  return {
      {"role", "assistant"},
      {"content", ""},
      {"tool_calls",
       ordered_json::array(
           {{{"id", "quire0001"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", {{"x", "1"}}}}}}})}};
}

ordered_json probe_result() {
  return {{"role", "tool"}, {"tool_call_id", "quire0001"}, {"name", "f"}, {"content", "ok"}};
}

// Whether the prompt of these messages has both texts, as far as a message has them.
bool shows_all(const RenderChat& render, std::initializer_list<ordered_json> messages, bool generation_prompt = true) {
  ChatInput chat{.add_generation_prompt = generation_prompt};
  for (const ordered_json& message : messages) chat.messages.push_back(message);
  const auto has = [&](const char* text) {
    return std::ranges::any_of(messages, [&](const ordered_json& message) { return message["content"] == text; });
  };
  try {
    const std::string prompt = render(std::move(chat));
    return (!has(kFirstProbe) || prompt.find(kFirstProbe) != std::string::npos) &&
           (!has(kSecondProbe) || prompt.find(kSecondProbe) != std::string::npos);
  } catch (const Error&) {
    return false;
  }
}

bool names_role(std::string_view source, std::string_view role) {
  for (const char quote : {'\'', '"'}) {
    if (source.find(quote + std::string(role) + quote) != std::string_view::npos) return true;
  }
  return false;
}

std::string_view role_of(const ordered_json& message) {
  if (!message.is_object()) return {};
  const auto role = message.find("role");
  return role != message.end() && role->is_string() ? std::string_view(role->get_ref<const std::string&>())
                                                    : std::string_view{};
}

bool instructs(const ordered_json& message) {
  const std::string_view role = role_of(message);
  return role == "system" || role == "developer";
}

bool has_calls(const ordered_json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool is_empty_content(const ordered_json& content) {
  return content.is_null() || (content.is_string() && content.get_ref<const std::string&>().empty());
}

ordered_json as_parts(ordered_json content) {
  if (content.is_array()) return content;
  return ordered_json::array({{{"type", "text"}, {"text", std::move(content)}}});
}

// Both contents, with an empty line between texts.
ordered_json joined(ordered_json first, ordered_json second) {
  if (is_empty_content(first)) return second;
  if (is_empty_content(second)) return first;
  if (first.is_string() && second.is_string()) {
    first.get_ref<std::string&>() += "\n\n" + second.get_ref<const std::string&>();
    return first;
  }
  first = as_parts(std::move(first));
  for (ordered_json& part : as_parts(std::move(second))) first.push_back(std::move(part));
  return first;
}

ordered_json take_content(ordered_json& message) {
  const auto content = message.find("content");
  return content == message.end() ? ordered_json() : std::exchange(*content, nullptr);
}

void join_into(ordered_json& first, ordered_json& second) {
  first["content"] = joined(take_content(first), take_content(second));
  if (const auto calls = second.find("tool_calls"); calls != second.end()) first["tool_calls"] = std::move(*calls);
  const auto thought = second.find("reasoning_content");
  if (thought == second.end() || !thought->is_string()) return;
  ordered_json& all = first["reasoning_content"];
  all = joined(std::move(all), std::move(*thought));
}

// Takes the messages with instructions out and returns their joined content.
ordered_json take_instructions(ordered_json& messages) {
  ordered_json content, rest = ordered_json::array();
  for (ordered_json& message : messages) {
    if (instructs(message)) {
      content = joined(std::move(content), take_content(message));
    } else {
      rest.push_back(std::move(message));
    }
  }
  messages = std::move(rest);
  return content;
}

// For templates without system messages: into the first message of the user, or the last one.
void instruct_user(ordered_json& messages, bool last) {
  if (std::ranges::none_of(messages, instructs)) return;
  ordered_json content = take_instructions(messages);
  const auto is_user = [](const ordered_json& message) { return role_of(message) == "user"; };
  auto at = std::ranges::find_if(messages, is_user);
  if (at == messages.end()) {
    messages.insert(messages.begin(), ordered_json{{"role", "user"}, {"content", std::move(content)}});
    return;
  }
  for (auto next = at; last && next != messages.end(); ++next) {
    if (is_user(*next)) at = next;
  }
  (*at)["content"] = joined(std::move(content), take_content(*at));
}

// All instructions become the first message, which keeps its other members.
void instruct_first(ordered_json& messages) {
  const auto at = std::ranges::find_if(messages, instructs);
  if (at == messages.end()) return;
  const bool only_first = at == messages.begin() && std::none_of(at + 1, messages.end(), instructs);
  if (only_first) return;
  ordered_json first = *at;
  first["content"] = take_instructions(messages);
  messages.insert(messages.begin(), std::move(first));
}

// Joins neighbours that `belong` together.
template <class Belong>
void join_neighbours(ordered_json& messages, Belong belong) {
  ordered_json made = ordered_json::array();
  for (ordered_json& message : messages) {
    if (!made.empty() && belong(made.back(), message)) {
      join_into(made.back(), message);
    } else {
      made.push_back(std::move(message));
    }
  }
  messages = std::move(made);
}

// The instructions at the start become one message.
void join_leading(ordered_json& messages) {
  bool leads = true;
  join_neighbours(messages, [&](const ordered_json& first, const ordered_json& second) {
    leads = leads && instructs(first);
    return leads && instructs(second);
  });
}

void join_same_roles(ordered_json& messages, const MessageRoles& roles) {
  join_neighbours(messages, [&](const ordered_json& first, const ordered_json& second) {
    const std::string_view role = role_of(first);
    if (role != role_of(second) || has_calls(first)) return false;
    if (has_calls(second) && roles.counts_across_calls) return false;
    return (role == "user" && !roles.user_runs) || (role == "assistant" && !roles.assistant_runs);
  });
}

void separate_same_roles(ordered_json& messages) {
  ordered_json made = ordered_json::array();
  std::string last;
  for (ordered_json& message : messages) {
    const std::string_view role = role_of(message);
    if ((role == "user" || role == "assistant") && !has_calls(message)) {
      if (role == last) made.push_back({{"role", role == "user" ? "assistant" : "user"}, {"content", ""}});
      last = role;
    }
    made.push_back(std::move(message));
  }
  messages = std::move(made);
}

}  // namespace

MessageRoles find_message_roles(std::string_view source, const RenderChat& render) {
  const ordered_json user = probe_message("user", "Hi"), assistant = probe_message("assistant", "Yes");
  const ordered_json first_user = probe_message("user", kFirstProbe), second_user = probe_message("user", kSecondProbe);
  const ordered_json system = probe_message("system", kFirstProbe), more = probe_message("system", kSecondProbe);
  const ordered_json first_answer = probe_message("assistant", kFirstProbe),
                     second_answer = probe_message("assistant", kSecondProbe);
  MessageRoles roles;
  if (!shows_all(render, {first_user})) {
    const RenderChat listed = [&](ChatInput chat) {
      chat.tools = ordered_json::array();
      return render(std::move(chat));
    };
    if (!shows_all(listed, {first_user})) return roles;  // nothing can be learnt
    roles = find_message_roles(source, listed);
    roles.needs_tools = true;
    return roles;
  }
  roles.developer =
      names_role(source, "developer") && shows_all(render, {probe_message("developer", kFirstProbe), user});
  roles.system = shows_all(render, {system, user});
  roles.several_leading = shows_all(render, {system, more, user});
  roles.late_system = shows_all(render, {system, user, assistant, more, user});
  roles.system_before_end =
      shows_all(render, {system, user, assistant}, false) || !shows_all(render, {first_user, assistant}, false);
  roles.user_runs = shows_all(render, {first_user, second_user});
  roles.assistant_runs = shows_all(render, {user, first_answer, second_answer, user});
  const ordered_json call = probe_call(), result = probe_result();
  roles.counts_across_calls =
      !roles.user_runs && !shows_all(render, {first_user, call, result, second_user}) &&
      shows_all(render, {first_user, call, result, probe_message("assistant", ""), second_user});
  return roles;
}

void fit_chat(ChatInput& chat, const MessageRoles& roles) {
  if (roles.needs_tools && chat.tools.is_null()) chat.tools = ordered_json::array();
  ordered_json& messages = chat.messages;
  if (!messages.is_array() || messages.empty()) return;
  if (!roles.developer) {
    for (ordered_json& message : messages) {
      if (role_of(message) == "developer") message["role"] = "system";
    }
  }
  if (!roles.system) {
    instruct_user(messages, false);
  } else if (!roles.system_before_end && role_of(messages.back()) != "user") {
    instruct_user(messages, true);
  } else if (!roles.late_system) {
    instruct_first(messages);
  } else if (!roles.several_leading) {
    join_leading(messages);
  }
  if (!roles.user_runs || !roles.assistant_runs) join_same_roles(messages, roles);
  if (roles.counts_across_calls) separate_same_roles(messages);
}

}  // namespace quire
