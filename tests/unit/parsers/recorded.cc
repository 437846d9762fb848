#include "unit/parsers/recorded.h"

#include <gtest/gtest.h>

#include "text/token_frames.h"

namespace quire {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::string framed(std::string_view answer) {
  std::string text(answer);
  text = replaced(text, "«", {&kSpecialFrame, 1});
  text = replaced(text, "‹", {&kShownFrame, 1});
  text = replaced(text, "»", {&kFrameEnd, 1});
  return replaced(text, "›", {&kFrameEnd, 1});
}

std::shared_ptr<const ToolList> recorded_tools() {
  return std::make_shared<ToolList>(ToolList{
      {"weather",
       Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                                  "unit": {"enum": ["C", "F"]}}})")},
      {"note",
       Json::parse(R"({"type": "object", "properties": {"text": {"type": "string"}, "tags": {"type": "array"}}})")},
      {"time", nullptr}});
}

AnswerFormat format_of(const std::string& tools, const std::string& reasoning, std::string_view answer) {
  const std::string text = framed(answer);
  const auto is_token = [&](std::string_view mark) {
    const std::string content = std::string(mark) + kFrameEnd;
    return text.find(kSpecialFrame + content) != std::string::npos ||
           text.find(kShownFrame + content) != std::string::npos;
  };
  return choose_format("", is_token, tools, reasoning);
}

RecordedMessage joined(const std::vector<AnswerPiece>& pieces) {
  RecordedMessage message;
  for (const AnswerPiece& piece : pieces) {
    switch (piece.kind) {
      case AnswerPiece::kText:
        message.text += piece.text;
        break;
      case AnswerPiece::kReasoning:
        message.reasoning += piece.text;
        break;
      case AnswerPiece::kCallBegin:
        EXPECT_EQ(piece.call, static_cast<int>(message.calls.size()));
        message.calls.push_back({piece.text, "", false});
        break;
      default:
        if (message.calls.empty() || message.calls.back().ended) {
          ADD_FAILURE() << "no call is open";
          break;
        }
        EXPECT_EQ(piece.call, static_cast<int>(message.calls.size()) - 1);
        if (piece.kind == AnswerPiece::kCallEnd) message.calls.back().ended = true;
        message.calls.back().arguments += piece.text;
    }
  }
  return message;
}

const std::vector<RecordedAnswer>& recorded_answers() {
  static const std::vector<RecordedAnswer> kAnswers = {
      {"text without calls keeps its white space",
       "hermes",
       "none",
       " Hello, <b>world</b> \n",
       {" Hello, <b>world</b> \n"}},
      {"hermes",
       "hermes",
       "none",
       "‹<tool_call>›\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Tromsø\", \"days\": 3}}\n‹</tool_call>›",
       {"", "", {{"weather", R"({"city": "Tromsø", "days": 3})"}}}},
      {"hermes with marks that are no tokens",
       "hermes",
       "none",
       "Let me look.\n\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
       "{\"arguments\": {\"city\": \"}]{[\\\"\"}, \"name\": \"weather\"}\n</tool_call>\n",
       {"Let me look.", "", {{"time", "{}"}, {"weather", R"({"city": "}]{[\""})"}}}},
      {"hermes with text that spells a mark which is a token",
       "hermes",
       "none",
       "Write <tool_call>{\"name\": \"x\"}</tool_call>.‹<tool_call>›{\"name\":\"note\",\"arguments\":{\"text\":"
       "\"</tool_call>\"}}‹</tool_call>›",
       {"Write <tool_call>{\"name\": \"x\"}</tool_call>.", "", {{"note", R"({"text":"</tool_call>"})"}}}},
      {"hermes with arguments as a string",
       "hermes",
       "none",
       R"(<tool_call>{"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}</tool_call>)",
       {"", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"hermes with other keys",
       "hermes",
       "none",
       R"(<tool_call>{"id": 17, "x": [{"name": "a"}], "name": "weather", "arguments": {"city": "A"}, "y": null}</tool_call>)",
       {"", "", {{"weather", R"({"city": "A"})"}}}},
      {"hermes without arguments",
       "hermes",
       "none",
       R"(<tool_call>{"name": "time"}</tool_call>)",
       {"", "", {{"time", "{}"}}}},
      {"hermes with null as arguments",
       "hermes",
       "none",
       R"(<tool_call>{"name": "time", "arguments": null}</tool_call>)",
       {"", "", {{"time", "{}"}}}},
      {"hermes with a brace too many",
       "hermes",
       "none",
       R"(<tool_call>{"name": "time", "arguments": {}}}</tool_call> Done.)",
       {" Done.", "", {{"time", "{}"}}}},
      {"hermes with a brace too few",
       "hermes",
       "none",
       R"(<tool_call>{"name": "time", "arguments": {"a": 1}</tool_call> Done.)",
       {" Done.", "", {{"time", R"({"a": 1})"}}}},
      {"hermes without JSON",
       "hermes",
       "none",
       "Like <tool_call>this</tool_call> or <tool_call>{this}</tool_call>.",
       {"Like <tool_call>this</tool_call> or <tool_call>{this}</tool_call>."}},
      {"hermes without a name",
       "hermes",
       "none",
       R"(<tool_call>{"arguments": {"a": [1, 2]}}</tool_call> and <tool_call>{"name": 5, "arguments": {}}</tool_call>)",
       {R"(<tool_call>{"arguments": {"a": [1, 2]}}</tool_call> and <tool_call>{"name": 5, "arguments": {}}</tool_call>)"}},
      {"hermes cut off within the arguments",
       "hermes",
       "none",
       R"(<tool_call>{"name": "weather", "arguments": {"city": "Ber)",
       {"", "", {{"weather", R"({"city": "Ber)", false}}},
       false},
      {"hermes cut off before the arguments",
       "hermes",
       "none",
       R"(Now: <tool_call>{"name": "weath)",
       {R"(Now: <tool_call>{"name": "weath)"},
       false},
      {"hermes cut off within a mark", "hermes", "none", "a < b <tool_ca", {"a < b <tool_ca"}, false},
      {"hermes without the closing mark",
       "hermes",
       "none",
       R"(<tool_call>{"name": "time", "arguments": {}})",
       {"", "", {{"time", "{}"}}}},
      {"special tokens are left out, others are text",
       "hermes",
       "none",
       "a«<|im_start|>»b‹<tool_response>›c",
       {"ab<tool_response>c"}},
      {"qwen3 thinks and calls",
       "hermes",
       "qwen3",
       "‹<think>›\nThe user asks.\n\nI call it.\n‹</think>›\n\n‹<tool_call>›\n{\"name\": \"time\", \"arguments\": "
       "{}}\n‹</tool_call>›",
       {"", "The user asks.\n\nI call it.", {{"time", "{}"}}}},
      {"qwen3 thinks and answers",
       "hermes",
       "qwen3",
       "\n<think>\nHm, <think> is a tag.\n</think>\n\nA </think> B <think> C",
       {"A </think> B <think> C", "Hm, <think> is a tag."}},
      {"an empty thought", "hermes", "qwen3", "<think>\n\n</think>\n\nYes.", {"Yes."}},
      {"a prompt that opens the thought",
       "none",
       "qwen3",
       "I think\n</think>\n\n So I am.\n",
       {"So I am.\n", "I think"},
       true,
       true},
      {"a thought that is cut off", "none", "qwen3", "<think>On and on </thin", {"", "On and on </thin"}, false},
      {"deepseek_r1 begins inside a thought", "none", "deepseek_r1", "Hm.\n</think>\nYes.", {"Yes.", "Hm."}},
      {"tags later in a text are no thoughts", "none", "qwen3", "Use <think>x</think>.", {"Use <think>x</think>."}},
      {"a second thought by tokens", "none", "qwen3", "‹<think>›a‹</think>›b‹<think>›c‹</think>›d", {"bd", "a\n\nc"}},
      {"white space at the start is text", "none", "qwen3", " \n<thinking>", {" \n<thinking>"}},
      {"a mark inside a thought is part of it",
       "hermes",
       "qwen3",
       "<think>a <tool_call> b</think>c",
       {"c", "a <tool_call> b"}},
      {"qwen3_coder",
       "qwen3_coder",
       "none",
       "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nSão "
       "\"Paulo\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
       "<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=time>\n</function>\n</"
       "tool_call>",
       {"I look.", "", {{"weather", R"({"city": "São \"Paulo\"", "days": 3, "unit": "C"})"}, {"time", "{}"}}}},
      {"qwen3_coder with a text of lines and tags",
       "qwen3_coder",
       "none",
       "<tool_call>\n<function=note>\n<parameter=text>\n\na\n\t</b>\n<parameter\n\n</"
       "parameter>\n<parameter=tags>\n[\"x\", 1]\n"
       "</parameter>\n<parameter=extra>\nTrue\n</parameter>\n<parameter=more>\nsome "
       "{text}\n</parameter>\n</function>\n</tool_call>",
       {"",
        "",
        {{"note",
          R"({"text": "\na\n\t</b>\n<parameter\n", "tags": ["x", 1], "extra": true, "more": "some {text}"})"}}}},
      {"qwen3_coder without the end of a parameter",
       "qwen3_coder",
       "none",
       "<tool_call><function=weather><parameter=city>Oslo</function></tool_call>",
       {"", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"qwen3_coder without the end of the function",
       "qwen3_coder",
       "none",
       "<tool_call><function=weather><parameter=city>Oslo</parameter>",
       {"", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"qwen3_coder cut off",
       "qwen3_coder",
       "none",
       "<tool_call><function=weather><parameter=city>Os",
       {"", "", {{"weather", R"({"city": "Os)", false}}},
       false},
      {"qwen3_coder cut off between parameters",
       "qwen3_coder",
       "none",
       "<tool_call><function=weather><parameter=days>1</parameter>",
       {"", "", {{"weather", R"({"days": 1)", false}}},
       false},
      {"qwen3_coder that is none",
       "qwen3_coder",
       "none",
       "<tool_call>Hello</tool_call> <function=x>",
       {"<tool_call>Hello</tool_call> <function=x>"}},
      {"glm45",
       "glm45",
       "glm45",
       "\n‹<think>›Weather.‹</think>›\nI "
       "look.\n‹<tool_call>›weather\n‹<arg_key>›city‹</arg_key>›\n‹<arg_value>›Oslo‹</arg_value>›\n"
       "‹<arg_key>›days‹</arg_key>›\n‹<arg_value>›2‹</arg_value>›\n‹</tool_call>›\n‹<tool_call>›time\n‹</tool_call>›",
       {"I look.", "Weather.", {{"weather", R"({"city": "Oslo", "days": 2})"}, {"time", "{}"}}}},
      {"minimax_m2",
       "minimax_m2",
       "none",
       "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n<parameter "
       "name=\"days\">1"
       "</parameter>\n</invoke>\n<invoke name=\"time\">\n</invoke>\n</minimax:tool_call>",
       {"", "", {{"weather", R"({"city": "Oslo", "days": 1})"}, {"time", "{}"}}}},
      {"seed_oss",
       "seed_oss",
       "seed_oss",
       "«<seed:think>»Hm«</seed:think>»\n«<seed:tool_call>»\n<function=time>\n</function>\n«</seed:tool_call>»",
       {"", "Hm", {{"time", "{}"}}}},
      {"llama3_json",
       "llama3_json",
       "none",
       R"({"name": "weather", "parameters": {"city": "Oslo", "days": "2"}})",
       {"", "", {{"weather", R"({"city": "Oslo", "days": "2"})"}}}},
      {"llama3_json with two calls",
       "llama3_json",
       "none",
       R"(«<|python_tag|>»{"name": "time", "parameters": {}}; {"name": "time", "parameters": {}})",
       {"", "", {{"time", "{}"}, {"time", "{}"}}}},
      {"llama3_json with JSON that is no call",
       "llama3_json",
       "none",
       R"( {"name": "Ada", "parameters": {"born": 1815}} and more)",
       {R"( {"name": "Ada", "parameters": {"born": 1815}} and more)"}},
      {"llama3_json with a call inside a text",
       "llama3_json",
       "none",
       R"(Say {"name": "time", "parameters": {}})",
       {R"(Say {"name": "time", "parameters": {}})"}},
      {"llama3_json with code", "llama3_json", "none", "«<|python_tag|>»print(1)", {"<|python_tag|>print(1)"}},
      {"functionary_v3",
       "functionary_v3",
       "none",
       R"(<function=weather>{"city": "Oslo"}</function><function=time>{}</function>)",
       {"", "", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"mistral, a list",
       "mistral",
       "none",
       R"(«[TOOL_CALLS]»[{"name": "weather", "arguments": {"city": "Oslo"}, "id": "abc123def"}, {"name": "time", "arguments": {}}])",
       {"", "", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"mistral, names first",
       "mistral",
       "mistral",
       R"(«[THINK]»Hm.«[/THINK]»On it.«[TOOL_CALLS]»weather«[ARGS]»{"city": "[ARGS]"}«[TOOL_CALLS]»time«[CALL_ID]»123456789«[ARGS]»{})",
       {"On it.", "Hm.", {{"weather", R"({"city": "[ARGS]"})"}, {"time", "{}"}}}},
      {"mistral, a name and an object",
       "mistral",
       "none",
       R"([TOOL_CALLS]weather{"city": "Oslo"})",
       {"", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"deepseek_v3",
       "deepseek_v3",
       "none",
       "Yes.«<｜tool▁calls▁begin｜>»«<｜tool▁call▁begin｜>»function«<｜tool▁sep｜>»weather\n```json\n{\"city\": "
       "\"Oslo\"}\n```"
       "«<｜tool▁call▁end｜>»\n«<｜tool▁call▁begin｜>»function«<｜tool▁sep｜>»time\n```json\n{}\n```«<"
       "｜tool▁call▁end｜>»"
       "«<｜tool▁calls▁end｜>»",
       {"Yes.", "", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"deepseek_v31",
       "deepseek_v31",
       "deepseek_v3",
       "‹<think>›Hm‹</think>›«<｜tool▁calls▁begin｜>»«<｜tool▁call▁begin｜>»weather«<｜tool▁sep｜>»{\"city\": \"Oslo\"}"
       "«<｜tool▁call▁end｜>»«<｜tool▁call▁begin｜>»time«<｜tool▁sep｜>»{}«<｜tool▁call▁end｜>»«<｜tool▁calls▁end｜>»",
       {"", "Hm", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"kimi_k2",
       "kimi_k2",
       "none",
       "«<|tool_calls_section_begin|>»«<|tool_call_begin|>»functions.weather:0«<|tool_call_argument_begin|>»{\"city\": "
       "\"Oslo\"}"
       "«<|tool_call_end|>»«<|tool_call_begin|>»functions.time:1«<|tool_call_argument_begin|>»{}«<|tool_call_end|>»"
       "«<|tool_calls_section_end|>»",
       {"", "", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"granite",
       "granite",
       "none",
       R"(«<|tool_call|>»[{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "time", "arguments": {}}])",
       {"", "", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"granite thinks", "none", "granite", "Here is my thought process: a b\nHere is my response: c", {"c", "a b"}},
      {"granite 3.3 thinks", "none", "granite3.3", "<think>a</think>\n<response>b <c> d</response>", {"b <c> d", "a"}},
      {"phi4_mini_json",
       "phi4_mini_json",
       "none",
       R"(functools[{"name": "weather", "arguments": {"city": "Oslo"}}])",
       {"", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"nemotron_json",
       "nemotron_json",
       "none",
       R"(<TOOLCALL>[{"name": "time", "arguments": {}}, {"name": "weather", "arguments": {"city": "Oslo"}}]</TOOLCALL>)",
       {"", "", {{"time", "{}"}, {"weather", R"({"city": "Oslo"})"}}}},
      {"an empty list", "nemotron_json", "none", "<TOOLCALL>[]</TOOLCALL>No.", {"No."}},
      {"apertus",
       "apertus",
       "apertus",
       R"(«<|inner_prefix|>»Hm«<|inner_suffix|>»«<|tools_prefix|>»[{"weather": {"city": "Oslo"}}, {"time": {}}]«<|tools_suffix|>»)",
       {"", "Hm", {{"weather", R"({"city": "Oslo"})"}, {"time", "{}"}}}},
      {"pythonic",
       "pythonic",
       "none",
       R"([weather(city="Oslo, \"N\"", days=2), note(text='it\'s', tags=[1, (True, None), {'a': -1.5e3}]), time()])",
       {"",
        "",
        {{"weather", R"({"city": "Oslo, \"N\"", "days": 2})"},
         {"note", R"({"text": "it's", "tags": [1, [true, null], {"a": -1.5e3}]})"},
         {"time", "{}"}}}},
      {"pythonic without names",
       "pythonic",
       "none",
       R"([weather("Oslo, N", 2), note(x, [1], tags=[2]), time(5)])",
       {"",
        "",
        {{"weather", R"({"city": "Oslo, N", "days": 2})"},
         {"note", R"({"text": "x", "tags": [1], "tags": [2]})"},
         {"time", R"({"arg0": 5})"}}}},
      {"pythonic that is a list", "pythonic", "none", "[1, 2] and [unknown(x=1)]", {"[1, 2] and [unknown(x=1)]"}},
      {"pythonic with another function", "pythonic", "none", "[print(x=1)]", {"[print(x=1)]"}},
      {"pythonic with a value that is none",
       "pythonic",
       "none",
       "[weather(city=Oslo)]",
       {"", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"lfm2",
       "lfm2",
       "none",
       "«<|tool_call_start|>»[weather(city='Oslo')]«<|tool_call_end|>»Checking.",
       {"Checking.", "", {{"weather", R"({"city": "Oslo"})"}}}},
      {"gemma4",
       "gemma4",
       "gemma4",
       "«<|channel>»thought\nHm«<channel|>»Yes.«<|tool_call>»call:weather{city:«<|\"|>»Os,l}o«<|\"|>»,days:3}«<tool_"
       "call|>»"
       "«<|tool_call>»call:note{tags:[«<|\"|>»a«<|\"|>»,{«<|\"|>»k«<|\"|>»:null}],text:«<|\"|>»«<|\"|>»}«<tool_call|>»",
       {"Yes.",
        "Hm",
        {{"weather", R"({"city": "Os,l}o", "days": 3})"}, {"note", R"({"tags": ["a", {"k": null}], "text": ""})"}}}},
      {"functiongemma",
       "functiongemma",
       "none",
       "<start_function_call>call:weather{city:<escape>Oslo<escape>,days:2}<end_function_call>",
       {"", "", {{"weather", R"({"city": "Oslo", "days": 2})"}}}},
      {"harmony",
       "openai",
       "openai_gptoss",
       "«<|channel|>»analysis«<|message|>»Need "
       "weather.«<|end|>»«<|start|>»assistant«<|channel|>»commentary«<|message|>»I look.«<|end|>»"
       "«<|start|>»assistant«<|channel|>»commentary to=functions.weather «<|constrain|>»json«<|message|>»{\"city\": "
       "\"Oslo\"}",
       {"I look.", "Need weather.", {{"weather", R"({"city": "Oslo"})"}}}},
      {"harmony with the recipient first",
       "openai",
       "openai_gptoss",
       " to=functions.time«<|channel|>»commentary json«<|message|>»{}«<|call|>»",
       {"", "", {{"time", "{}"}}}},
      {"harmony answers",
       "none",
       "openai_gptoss",
       "«<|channel|>»analysis«<|message|>»a«<|end|>»«<|start|>»assistant«<|channel|>»analysis«<|message|>»b«<|end|>»"
       "«<|start|>»assistant«<|channel|>»final«<|message|>»Use <|end|> so.",
       {"Use <|end|> so.", "a\n\nb"}},
      {"harmony with text after a message",
       "openai",
       "openai_gptoss",
       "«<|channel|>»final«<|message|>»a«<|end|>»b c",
       {"a\n\nb c"}},
      {"harmony without channels", "openai", "openai_gptoss", "Hello there", {"Hello there"}},
      {"json", "json", "none", R"({"name": "time", "arguments": {}})", {"", "", {{"time", "{}"}}}},
      {"json in tags",
       "json",
       "none",
       R"(<tool_call>{"name": "x", "arguments": {}}</tool_call>)",
       {"", "", {{"x", "{}"}}}},
      {"json in a fence",
       "json",
       "none",
       "So:\n```json\n{\"name\": \"time\", \"arguments\": {\"a\": \"```\"}}\n```\nDone.",
       {"So:\n\nDone.", "", {{"time", R"({"a": "```"})"}}}},
      {"json that is no call",
       "json",
       "none",
       "```json\n{\"name\": \"Ada\", \"arguments\": {}}\n```",
       {"```json\n{\"name\": \"Ada\", \"arguments\": {}}\n```"}},
  };
  return kAnswers;
}

}  // namespace quire
