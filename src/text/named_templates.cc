#include "text/named_templates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

struct NamedTemplate {
  std::string_view name, source;
};

// What each model was trained on is written down in its own template; these are the shapes that many share.
constexpr NamedTemplate kTemplates[] = {
    {"chatml",
     "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"gemma",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
     "{{ raise_exception('Gemma has no system messages') }}{% endif %}<start_of_turn>"
     "{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n{{ message['content'] | trim }}"
     "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
    {"llama2",
     "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] + ' ' }}"
     "{{ eos_token }}{% elif message['role'] == 'user' %}{{ bos_token }}{{ '[INST] ' }}"
     "{% if loop.previtem is defined and loop.previtem['role'] == 'system' %}"
     "{{ '<<SYS>>\\n' + loop.previtem['content'] + '\\n<</SYS>>\\n\\n' }}{% endif %}"
     "{{ message['content'] + ' [/INST]' }}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
     "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"mistral-v1",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] }}"
     "{{ eos_token }}{% elif message['role'] == 'user' %}{{ ' [INST] ' + message['content'] + ' [/INST]' }}"
     "{% else %}{{ raise_exception('Mistral v1 has no system messages') }}{% endif %}{% endfor %}"},
    {"mistral-v3",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] }}"
     "{{ eos_token }}{% elif message['role'] == 'user' %}{{ '[INST] ' + message['content'] + '[/INST]' }}"
     "{% else %}{{ raise_exception('Mistral v3 has no system messages') }}{% endif %}{% endfor %}"},
    {"mistral-v7",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' + message['content'] }}"
     "{{ eos_token }}{% elif message['role'] == 'user' %}{{ '[INST] ' + message['content'] + '[/INST]' }}"
     "{% else %}{{ '[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]' }}{% endif %}{% endfor %}"},
    {"phi3",
     "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"vicuna",
     "{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}"
     "{% elif message['role'] == 'user' %}{{ 'USER: ' + message['content'] + '\\n' }}{% else %}"
     "{{ 'ASSISTANT: ' + message['content'] }}{{ eos_token }}{{ '\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}ASSISTANT:{% endif %}"},
    {"zephyr",
     "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}{{ eos_token }}\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

}  // namespace

std::optional<std::string> named_template(std::string_view name) {
  const auto found = std::ranges::find(kTemplates, name, &NamedTemplate::name);
  return found == std::end(kTemplates) ? std::nullopt : std::optional<std::string>(found->source);
}

std::vector<std::string_view> template_names() {
  std::vector<std::string_view> names;
  for (const NamedTemplate& known : kTemplates) names.push_back(known.name);
  return names;
}

std::optional<std::string> template_or_named(const std::string& source, const std::string& where) {
  const std::string_view name = trimmed(source);
  if (name.empty()) return std::nullopt;
  if (source.find("{{") != source.npos || source.find("{%") != source.npos) return source;
  if (auto known = named_template(name)) return known;
  throw invalid("{} is {}, which is neither a template nor the name of a known one ({}); pass one with --chat-template",
                where, quote(name.substr(0, 64)), fmt::join(template_names(), ", "));
}

}  // namespace quire
