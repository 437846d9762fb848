// Families are recognised by the marks in their templates.
#include "parsers/families.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "error_of.h"
#include "paths.h"

namespace quire {
namespace {

std::string chosen(std::string_view source, std::string_view tools = "auto", std::string_view reasoning = "auto") {
  const AnswerFormat format = choose_format(
      source, [](std::string_view) { return false; }, tools, reasoning);
  return std::string(format.tools ? format.tools->name : "none") + " " +
         std::string(format.reasoning ? format.reasoning->name : "none");
}

TEST(Families, AreRecognisedByTheirMarks) {
  EXPECT_EQ(chosen("{{ '<tool_call>\\n{\"name\": \"' }}"), "hermes none");
  EXPECT_EQ(chosen("{{ '<think>\\n\\n</think>' }} <tool_call>"), "hermes qwen3");
  EXPECT_EQ(chosen("<tool_call>\\n<function=' + name + '>\\n<parameter=x>\\n</parameter></function>"),
            "qwen3_coder none");
  EXPECT_EQ(chosen("<tool_call>{name}\\n<arg_key>{k}</arg_key>\\n<arg_value></think>"), "glm45 qwen3");
  EXPECT_EQ(chosen("<tool_call>{name}<arg_key>{k}</arg_key><arg_value></think>"), "glm47 qwen3");
  EXPECT_EQ(chosen("<tool_call>\\n<function=f>\\n<parameter=example_parameter_1>value_1</parameter>\\n</function>"),
            "mimo none");
  EXPECT_EQ(chosen("'<｜DSML｜function_calls>' '<｜DSML｜invoke name=\"' </think>"), "deepseek_v32 qwen3");
  EXPECT_EQ(chosen("'<｜DSML｜tool_calls>' '<｜DSML｜invoke name=\"' </think>"), "deepseek_v4 qwen3");
  EXPECT_EQ(chosen("'<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"' + name"),
            "step3 none");
  EXPECT_EQ(chosen("'<|tool_call_begin|>' + id + '<|tool_call_argument_begin|>' <think></think>"), "kimi_k2 qwen3");
  EXPECT_EQ(chosen("'<|start|>assistant<|channel|>analysis<|message|>'"), "openai openai_gptoss");
  EXPECT_EQ(chosen("'<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>'"), "deepseek_v3 none");
  EXPECT_EQ(chosen("'[TOOL_CALLS]' + name + '[ARGS]' [THINK]"), "mistral mistral");
  EXPECT_EQ(chosen("\"<|python_tag|>\" + tool_call.name"), "llama3_json none");
  EXPECT_EQ(chosen("'<|im_start|>' + message['content']"), "json none");
}

TEST(Families, AreChosenByNameOverTheTemplate) {
  EXPECT_EQ(chosen("<tool_call></think>", "llama3_json", "none"), "llama3_json none");
  EXPECT_EQ(chosen("<tool_call>", "none", "deepseek_r1"), "none deepseek_r1");
  EXPECT_EQ(chosen("", "qwen3_xml", "glm45"), "qwen3_coder qwen3");
  EXPECT_EQ(chosen("", "step3p5", "step3p5"), "qwen3_coder deepseek_r1");
  EXPECT_EQ(chosen("", "json", "openai_gptoss"), "openai openai_gptoss");  // channels hold calls, too
  EXPECT_EQ(error_of([] { chosen("", "herms"); }),
            "--tool-call-parser herms is not known; quire serve --help lists the names");
  EXPECT_EQ(error_of([] { chosen("", "auto", "x"); }),
            "--reasoning-parser x is not known; quire serve --help lists the names");
}

TEST(Families, KnowWhichMarksAreTokens) {
  const auto format = choose_format(
      "<tool_call></think>", [](std::string_view mark) { return mark.starts_with("</"); }, "auto", "auto");
  EXPECT_EQ(format.tokens, (std::set<std::string, std::less<>>{"</think>", "</tool_call>"}));
}

TEST(Families, OfRealTemplates) {
  const std::filesystem::path folder = shared_dir() / "data/templates";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << folder << " is absent";
  const std::map<std::string, std::string> kExpected = {
      {"Apertus-8B-Instruct", "apertus apertus"},
      {"ByteDance-Seed-OSS", "seed_oss seed_oss"},
      {"CohereForAI-c4ai-command-r-plus-tool_use", "json none"},
      {"GLM-4.6", "glm45 qwen3"},
      {"HuggingFaceTB-SmolLM3-3B", "json qwen3"},
      {"Kimi-K2-Instruct", "kimi_k2 none"},
      {"LFM2-8B-A1B", "lfm2 none"},
      {"MiniMax-M2", "minimax_m2 qwen3"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "mistral none"},
      {"NVIDIA-Nemotron-Nano-v2", "nemotron_json qwen3"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes none"},
      {"Qwen-QwQ-32B", "hermes qwen3"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes none"},
      {"Qwen-Qwen3-0.6B", "hermes qwen3"},
      {"Qwen3-Coder", "qwen3_coder none"},
      {"Qwen3.5-4B", "qwen3_coder qwen3"},
      {"SmolLM2-135M-Instruct", "json none"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3 qwen3"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3 qwen3"},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek_v3 qwen3"},
      {"google-gemma-2-2b-it", "json none"},
      {"google-gemma-3-it", "json none"},
      {"google-gemma-4-31B-it", "gemma4 gemma4"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite granite3.3"},
      {"ibm-granite-granite-4.0", "hermes none"},
      {"llama-cpp-deepseek-r1", "deepseek_v3 qwen3"},
      {"meetkai-functionary-medium-v3.1", "functionary_v3 none"},
      {"meta-llama-Llama-3-8B-Instruct", "json none"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json none"},
      {"microsoft-Phi-3-mini-4k-instruct", "json none"},
      {"microsoft-Phi-3.5-mini-instruct", "json none"},
      {"microsoft-Phi-4-mini-instruct", "phi4_mini_json none"},
      {"microsoft-Phi-4", "phi4_mini_json none"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral none"},
      {"openai-gpt-oss-120b", "openai openai_gptoss"},
  };
  for (const auto& [name, families] : kExpected) {
    std::ifstream file(folder / (name + ".jinja"));
    std::ostringstream source;
    source << file.rdbuf();
    EXPECT_EQ(chosen(source.str()), families) << name;
  }
}

}  // namespace
}  // namespace quire
