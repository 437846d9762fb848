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

// <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>, between marks of each family's own.
struct InvokeMarks {
  std::string_view function, function_end, key, value_end;
};
CallSyntax invoke_tags(std::vector<std::string_view> opens, std::vector<std::string_view> closes, InvokeMarks marks) {
  return {.shape = CallShape::kTags,
          .opens = std::move(opens),
          .closes = std::move(closes),
          .function = marks.function,
          .name_end = "\">",
          .function_end = marks.function_end,
          .key = marks.key,
          .key_end = "\">",
          .value_end = marks.value_end};
}
constexpr InvokeMarks kInvoke = {"<invoke name=\"", "</invoke>", "<parameter name=\"", "</parameter>"};

CallSyntax step_tags() {
  constexpr InvokeMarks kMarks = {"<steptml:invoke name=\"", "</steptml:invoke>", "<steptml:parameter name=\"",
                                  "</steptml:parameter>"};
  CallSyntax syntax = invoke_tags({"<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"},
                                  {"<｜tool_call_end｜>", "<｜tool_calls_end｜>"}, kMarks);
  syntax.name_ends = {"<｜tool_sep｜>"};
  return syntax;
}

// DeepSeek's DSML says of each value whether it is a text or JSON.
CallSyntax dsml_tags(std::string_view open, std::string_view close) {
  constexpr InvokeMarks kMarks = {"<｜DSML｜invoke name=\"", "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"",
                                  "</｜DSML｜parameter>"};
  CallSyntax syntax = invoke_tags({open}, {close}, kMarks);
  syntax.text_key = "\" string=\"true";
  syntax.json_key = "\" string=\"false";
  syntax.word = "｜DSML｜";
  return syntax;
}
constexpr CallForm dsml_form(std::string_view begin, std::string_view end) {
  return {.begin = begin,
          .before_name = "<｜DSML｜invoke name=\"",
          .before_arguments = "\">\n",
          .after_arguments = "</｜DSML｜invoke>\n",
          .end = end};
}

// <arg_key>KEY</arg_key><arg_value>VALUE</arg_value> after the name.
CallSyntax glm_tags() {
  return {.shape = CallShape::kTags,
          .opens = {"<tool_call>"},
          .closes = {"</tool_call>"},
          .key = "<arg_key>",
          .key_end = "</arg_key>",
          .value = "<arg_value>",
          .value_end = "</arg_value>"};
}

// <function=NAME><parameter=KEY>VALUE</parameter></function>, between marks of each family's own.
CallSyntax function_tags(std::string_view open, std::string_view close) {
  return {.shape = CallShape::kTags,
          .opens = {open},
          .closes = {close},
          .function = "<function=",
          .name_end = ">",
          .function_end = "</function>",
          .key = "<parameter=",
          .key_end = ">",
          .value_end = "</parameter>"};
}

constexpr CallForm kHermesForm = {.before_name = "<tool_call>\n{\"name\": \"",
                                  .before_arguments = "\", \"arguments\": ",
                                  .after_arguments = "}\n</tool_call>",
                                  .separator = "\n"};

// [{"name": …, "arguments": {…}}] between marks.
constexpr CallForm list_form(std::string_view begin, std::string_view end) {
  return {.begin = begin,
          .before_name = "{\"name\": \"",
          .before_arguments = "\", \"arguments\": ",
          .after_arguments = "}",
          .separator = ", ",
          .end = end};
}

constexpr CallForm python_form(std::string_view begin, std::string_view end) {
  return {.begin = begin, .before_arguments = "(", .after_arguments = ")", .separator = ", ", .end = end};
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
        .closes = {"<|end|>", "<|call|>", "<|return|>"}},
       {{.before_name = "<|channel|>commentary to=functions.",
         .before_arguments = " <|constrain|>json<|message|>",
         .single = true}}},
      {"kimi_k2",
       {},
       {"<|tool_call_argument_begin|>"},
       {.opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
        .closes = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
        .name_ends = {"<|tool_call_argument_begin|>"}},
       {{.begin = "<|tool_calls_section_begin|>",
         .before_name = "<|tool_call_begin|>functions.",
         .before_arguments = ":0<|tool_call_argument_begin|>",
         .after_arguments = "<|tool_call_end|>",
         .end = "<|tool_calls_section_end|>"}},
       CallIds::kFunctionNames},
      // V3 and R1 write: function, the separator, the name, and the arguments fenced; V3.1 name, separator, arguments.
      {"deepseek_v3",
       {"deepseek_v31"},
       {"<｜tool▁sep｜>"},
       {.opens = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
        .closes = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
        .name_ends = {"<｜tool▁sep｜>"}},
       {{.sign = "```json",
         .begin = "<｜tool▁calls▁begin｜>",
         .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
         .before_arguments = "\n```json\n",
         .after_arguments = "\n```<｜tool▁call▁end｜>",
         .separator = "\n",
         .end = "<｜tool▁calls▁end｜>"},
        {.begin = "<｜tool▁calls▁begin｜>",
         .before_name = "<｜tool▁call▁begin｜>",
         .before_arguments = "<｜tool▁sep｜>",
         .after_arguments = "<｜tool▁call▁end｜>",
         .end = "<｜tool▁calls▁end｜>"}}},
      // Before version 11 of Mistral's tokenizers a list of JSON, since then NAME[ARGS]{…}.
      {"mistral",
       {},
       {"[TOOL_CALLS]"},
       {.opens = {"[TOOL_CALLS]"}, .name_ends = {"[ARGS]", "[CALL_ID]"}},
       {{.sign = "[ARGS]", .before_name = "[TOOL_CALLS]", .before_arguments = "[ARGS]"},
        list_form("[TOOL_CALLS][", "]")},
       CallIds::kNineCharacters},
      {"gemma4",
       {},
       {"<|tool_call>"},
       {.shape = CallShape::kGemma, .opens = {"<|tool_call>"}, .closes = {"<tool_call|>"}, .quote = "<|\"|>"},
       {{.before_name = "<|tool_call>call:", .before_arguments = "{", .after_arguments = "}<tool_call|>"}}},
      {"functiongemma",
       {},
       {"<start_function_call>"},
       {.shape = CallShape::kGemma,
        .opens = {"<start_function_call>"},
        .closes = {"<end_function_call>"},
        .quote = "<escape>"},
       {{.before_name = "<start_function_call>call:",
         .before_arguments = "{",
         .after_arguments = "}<end_function_call>"}}},
      {"minimax_m2",
       {},
       {"<minimax:tool_call>"},
       invoke_tags({"<minimax:tool_call>"}, {"</minimax:tool_call>"}, kInvoke),
       {{.begin = "<minimax:tool_call>\n",
         .before_name = "<invoke name=\"",
         .before_arguments = "\">\n",
         .after_arguments = "</invoke>\n",
         .end = "</minimax:tool_call>"}}},
      {"deepseek_v32",
       {},
       {"<｜DSML｜function_calls>"},
       dsml_tags("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
       {dsml_form("<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>")}},
      {"deepseek_v4",
       {},
       {"<｜DSML｜tool_calls>"},
       dsml_tags("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
       {dsml_form("<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>")}},
      {"step3",
       {},
       {"<steptml:invoke"},
       step_tags(),
       {{.begin = "<｜tool_calls_begin｜>",
         .before_name = "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
         .before_arguments = "\">",
         .after_arguments = "</steptml:invoke><｜tool_call_end｜>",
         .end = "<｜tool_calls_end｜>",
         .after_value = ""}}},
      {"seed_oss",
       {},
       {"<seed:tool_call>"},
       function_tags("<seed:tool_call>", "</seed:tool_call>"),
       {{.before_name = "<seed:tool_call>\n<function=",
         .before_arguments = ">\n",
         .after_arguments = "</function>\n</seed:tool_call>",
         .separator = "\n"}}},
      // From GLM 4.7 on without line ends.
      {"glm47",
       {},
       {"</arg_key><arg_value>", "<tool_call>"},
       glm_tags(),
       {{.before_name = "<tool_call>", .after_arguments = "</tool_call>", .after_value = ""}}},
      {"glm45",
       {},
       {"<arg_key>", "<tool_call>"},
       glm_tags(),
       {{.before_name = "<tool_call>",
         .before_arguments = "\n",
         .after_arguments = "</tool_call>",
         .separator = "\n",
         .after_key = "\n"}}},
      // MiMo's values have no lines of their own.
      {"mimo",
       {},
       {"<parameter=example_parameter_1>value_1</parameter>", "<tool_call>"},
       function_tags("<tool_call>", "</tool_call>"),
       {{.before_name = "<tool_call>\n<function=",
         .before_arguments = ">\n",
         .after_arguments = "</function>\n</tool_call>",
         .separator = "\n"}}},
      {"qwen3_coder",
       {"qwen3_xml", "step3p5"},
       {"<parameter=", "<tool_call>"},
       function_tags("<tool_call>", "</tool_call>"),
       {{.before_name = "<tool_call>\n<function=",
         .before_arguments = ">\n",
         .after_arguments = "</function>\n</tool_call>",
         .separator = "\n",
         .around_value = "\n"}}},
      {"functionary_v3",
       {},
       {"<function=", "</function>"},
       {.opens = {"<function="}, .closes = {"</function>"}, .name_ends = {">"}},
       {{.before_name = "<function=", .before_arguments = ">", .after_arguments = "</function>"}}},
      {"granite",
       {"granite-20b-fc"},
       {"<|tool_call|>", "available_tools"},
       {.opens = {"<|tool_call|>", "<tool_call>"}},
       {list_form("<|tool_call|>[", "]")}},
      {"phi4_mini_json",
       {},
       {"<|tool|>", "<|/tool|>"},
       {.opens = {"functools", "<|tool_call|>"}, .closes = {"<|/tool_call|>"}},
       {list_form("<|tool_call|>[", "]<|/tool_call|>")}},
      {"nemotron_json",
       {},
       {"<TOOLCALL>"},
       {.opens = {"<TOOLCALL>"}, .closes = {"</TOOLCALL>"}},
       {list_form("<TOOLCALL>[", "]</TOOLCALL>")}},
      {"apertus",
       {},
       {"<|tools_prefix|>"},
       {.opens = {"<|tools_prefix|>"}, .closes = {"<|tools_suffix|>"}, .name_is_key = true},
       {{.begin = "<|tools_prefix|>[",
         .before_name = "{\"",
         .before_arguments = "\": ",
         .after_arguments = "}",
         .separator = ", ",
         .end = "]<|tools_suffix|>"}}},
      {"lfm2",
       {},
       {"<|tool_list_start|>"},
       {.shape = CallShape::kPython, .opens = {"<|tool_call_start|>"}, .closes = {"<|tool_call_end|>"}},
       {python_form("<|tool_call_start|>[", "]<|tool_call_end|>")}},
      {"hermes", {"qwen"}, {"<tool_call>"}, {.opens = {"<tool_call>"}, .closes = {"</tool_call>"}}, {kHermesForm}},
      {"pythonic",
       {"llama4_pythonic"},
       {"[func_name1("},
       {.shape = CallShape::kPython,
        .opens = {"<|python_tag|>", "<|python_start|>"},
        .closes = {"<|python_end|>"},
        .bare = true},
       {python_form("[", "]")}},
      {"llama3_json",
       {"llama4_json"},
       {"<|python_tag|>"},
       {.opens = {"<|python_tag|>"}, .bare = true},
       {{.before_name = "{\"name\": \"",
         .before_arguments = "\", \"parameters\": ",
         .after_arguments = "}",
         .separator = "; "}}},
      {"json",
       {},
       {},
       {.opens = {"<tool_call>", "[TOOL_CALLS]", "```json"}, .closes = {"</tool_call>", "```"}, .bare = true},
       {kHermesForm}},
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
      {"qwen3",
       {"glm45", "glm47", "deepseek_v3", "deepseek_v4", "kimi_k2", "mimo", "holo2"},
       {"</think>"},
       "<think>",
       "</think>"},
      {.name = "deepseek_r1",
       .other_names = {"minimax_m2", "nemotron_v3", "step3", "step3p5"},
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
    const auto& forms = format.tools->forms;
    const auto fits = [&](const CallForm& form) { return contains(template_source, form.sign); };
    const auto form = std::ranges::find_if(forms, fits);
    format.form = form == forms.end() ? &forms.back() : &*form;
    const CallSyntax& syntax = format.tools->syntax;
    for (const auto* marks : {&syntax.opens, &syntax.closes, &syntax.name_ends}) {
      for (const std::string_view mark : *marks) note(mark);
    }
    for (const std::string_view mark : {syntax.function, syntax.name_end, syntax.function_end, syntax.key,
                                        syntax.key_end, syntax.value, syntax.value_end, syntax.quote, syntax.word}) {
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
