#include "parsers/families.h"

#include <algorithm>

#include "base/error.h"

namespace quire {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool has_all(std::string_view text, const std::vector<std::string_view>& signs) {
  return !signs.empty() && std::ranges::all_of(signs, [&](std::string_view sign) { return contains(text, sign); });
}

template <class Family>
const Family* choose(std::span<const Family> families, std::string_view name, std::string_view source,
                     std::string_view flag) {
  if (name == "none") return nullptr;
  for (const Family& family : families) {
    const bool named = name == family.name || std::ranges::find(family.other_names, name) != family.other_names.end();
    if (name == "auto" ? has_all(source, family.signs) : named) return &family;
  }
  if (name == "auto") return nullptr;
  throw invalid("{} {} is not known; quire serve --help lists the names", flag, name);
}

template <class Family>
std::vector<std::string> names_of(std::span<const Family> families) {
  std::vector<std::string> names = {"auto", "none"};
  for (const Family& family : families) {
    names.emplace_back(family.name);
    names.insert(names.end(), family.other_names.begin(), family.other_names.end());
  }
  return names;
}

}  // namespace

// Signs are looked up from the first row to the last, so rare marks come before those that other families have, too.
std::span<const ToolFamily> tool_families() {
  static const std::vector<ToolFamily> kFamilies = {
      {"openai",
       {"harmony", "gpt_oss"},
       {"<|channel|>", "<|message|>"},
       {.shape = CallShape::kHarmony,
        .opens = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"},
        .closes = {"<|end|>", "<|call|>", "<|return|>"}}},
      {"kimi_k2",
       {},
       {"<|tool_call_argument_begin|>"},
       {.opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
        .closes = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
        .name_ends = {"<|tool_call_argument_begin|>"}}},
      // V3 and R1 write: function, the separator, the name, and the arguments fenced; V3.1 name, separator, arguments.
      {"deepseek_v3",
       {"deepseek_v31"},
       {"<｜tool▁sep｜>"},
       {.opens = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
        .closes = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
        .name_ends = {"<｜tool▁sep｜>"}}},
      // Before version 11 of Mistral's tokenizers a list of JSON, since then NAME[ARGS]{…}.
      {"mistral",
       {},
       {"[TOOL_CALLS]"},
       {.opens = {"[TOOL_CALLS]"}, .name_ends = {"[ARGS]", "[CALL_ID]"}},
       CallIds::kNineCharacters},
      {"gemma4",
       {},
       {"<|tool_call>"},
       {.shape = CallShape::kGemma, .opens = {"<|tool_call>"}, .closes = {"<tool_call|>"}, .quote = "<|\"|>"}},
      {"functiongemma",
       {},
       {"<start_function_call>"},
       {.shape = CallShape::kGemma,
        .opens = {"<start_function_call>"},
        .closes = {"<end_function_call>"},
        .quote = "<escape>"}},
      {"minimax_m2",
       {},
       {"<minimax:tool_call>"},
       {.shape = CallShape::kTags,
        .opens = {"<minimax:tool_call>"},
        .closes = {"</minimax:tool_call>"},
        .function = "<invoke name=\"",
        .name_end = "\">",
        .function_end = "</invoke>",
        .key = "<parameter name=\"",
        .key_end = "\">",
        .value_end = "</parameter>"}},
      {"seed_oss",
       {},
       {"<seed:tool_call>"},
       {.shape = CallShape::kTags,
        .opens = {"<seed:tool_call>"},
        .closes = {"</seed:tool_call>"},
        .function = "<function=",
        .name_end = ">",
        .function_end = "</function>",
        .key = "<parameter=",
        .key_end = ">",
        .value_end = "</parameter>"}},
      {"glm45",
       {"glm47"},
       {"<arg_key>", "<tool_call>"},
       {.shape = CallShape::kTags,
        .opens = {"<tool_call>"},
        .closes = {"</tool_call>"},
        .key = "<arg_key>",
        .key_end = "</arg_key>",
        .value = "<arg_value>",
        .value_end = "</arg_value>"}},
      {"qwen3_coder",
       {"qwen3_xml"},
       {"<parameter=", "<tool_call>"},
       {.shape = CallShape::kTags,
        .opens = {"<tool_call>"},
        .closes = {"</tool_call>"},
        .function = "<function=",
        .name_end = ">",
        .function_end = "</function>",
        .key = "<parameter=",
        .key_end = ">",
        .value_end = "</parameter>"}},
      {"functionary_v3",
       {},
       {"<function=", "</function>"},
       {.opens = {"<function="}, .closes = {"</function>"}, .name_ends = {">"}}},
      {"granite",
       {"granite-20b-fc"},
       {"<|tool_call|>", "available_tools"},
       {.opens = {"<|tool_call|>", "<tool_call>"}}},
      {"phi4_mini_json",
       {},
       {"<|tool|>", "<|/tool|>"},
       {.opens = {"functools", "<|tool_call|>"}, .closes = {"<|/tool_call|>"}}},
      {"nemotron_json", {}, {"<TOOLCALL>"}, {.opens = {"<TOOLCALL>"}, .closes = {"</TOOLCALL>"}}},
      {"apertus",
       {},
       {"<|tools_prefix|>"},
       {.opens = {"<|tools_prefix|>"}, .closes = {"<|tools_suffix|>"}, .name_is_key = true}},
      {"lfm2",
       {},
       {"<|tool_list_start|>"},
       {.shape = CallShape::kPython, .opens = {"<|tool_call_start|>"}, .closes = {"<|tool_call_end|>"}}},
      {"hermes", {"qwen"}, {"<tool_call>"}, {.opens = {"<tool_call>"}, .closes = {"</tool_call>"}}},
      {"pythonic",
       {"llama4_pythonic"},
       {"[func_name1("},
       {.shape = CallShape::kPython,
        .opens = {"<|python_tag|>", "<|python_start|>"},
        .closes = {"<|python_end|>"},
        .bare = true}},
      {"llama3_json", {"llama4_json"}, {"<|python_tag|>"}, {.opens = {"<|python_tag|>"}, .bare = true}},
      {"json",
       {},
       {},
       {.opens = {"<tool_call>", "[TOOL_CALLS]", "```json"}, .closes = {"</tool_call>", "```"}, .bare = true}},
  };
  return kFamilies;
}

std::span<const ReasoningFamily> reasoning_families() {
  static const std::vector<ReasoningFamily> kFamilies = {
      {.name = "openai_gptoss",
       .other_names = {"openai", "harmony"},
       .signs = {"<|channel|>", "<|message|>"},
       .harmony = true},
      {"seed_oss", {}, {"<seed:think>"}, "<seed:think>", "</seed:think>"},
      {"mistral", {}, {"[THINK]"}, "[THINK]", "[/THINK]"},
      {.name = "gemma4",
       .other_names = {},
       .signs = {"<|channel>thought", "<channel|>"},
       .open = "<|channel>",
       .close = "<channel|>",
       .label = "thought\n"},
      {"apertus", {}, {"<|inner_prefix|>"}, "<|inner_prefix|>", "<|inner_suffix|>"},
      {"kimi", {}, {"◁think▷"}, "◁think▷", "◁/think▷"},
      {.name = "granite3.3",
       .other_names = {},
       .signs = {"<response></response>"},
       .open = "<think>",
       .close = "</think>",
       .answer_open = "<response>",
       .answer_close = "</response>"},
      {"granite", {}, {"Here is my thought process:"}, "Here is my thought process:", "Here is my response:"},
      {"qwen3", {"glm45", "deepseek_v3", "kimi_k2", "holo2"}, {"</think>"}, "<think>", "</think>"},
      {.name = "deepseek_r1",
       .other_names = {"minimax_m2", "nemotron_v3"},
       .signs = {},
       .open = "<think>",
       .close = "</think>",
       .starts_inside = true},
  };
  return kFamilies;
}

const ToolFamily& generic_tool_family() { return tool_families().back(); }

AnswerFormat choose_format(std::string_view template_source, const IsToken& is_token, std::string_view tool_parser,
                           std::string_view reasoning_parser) {
  AnswerFormat format;
  format.tools = choose(tool_families(), tool_parser, template_source, "--tool-call-parser");
  if (!format.tools && tool_parser == "auto") format.tools = &generic_tool_family();
  format.reasoning = choose(reasoning_families(), reasoning_parser, template_source, "--reasoning-parser");
  format.starts_inside = format.reasoning && format.reasoning->starts_inside;
  const auto note = [&](std::string_view mark) {
    if (!mark.empty() && is_token(mark)) format.tokens.emplace(mark);
  };
  if (format.reasoning && format.reasoning->harmony) format.tools = &tool_families().front();  // one needs the other
  if (format.tools) {
    const CallSyntax& syntax = format.tools->syntax;
    for (const auto* marks : {&syntax.opens, &syntax.closes, &syntax.name_ends}) {
      for (const std::string_view mark : *marks) note(mark);
    }
    for (const std::string_view mark : {syntax.function, syntax.name_end, syntax.function_end, syntax.key,
                                        syntax.key_end, syntax.value, syntax.value_end, syntax.quote}) {
      note(mark);
    }
  }
  if (format.reasoning) {
    for (const std::string_view mark : {format.reasoning->open, format.reasoning->close, format.reasoning->answer_open,
                                        format.reasoning->answer_close}) {
      note(mark);
    }
  }
  return format;
}

std::vector<std::string> tool_parser_names() { return names_of(tool_families()); }
std::vector<std::string> reasoning_parser_names() { return names_of(reasoning_families()); }

}  // namespace quire
