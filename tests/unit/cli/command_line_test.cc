#include "cli/command_line.h"

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "cli/flags/engine_options.h"

namespace quire {
namespace {

struct CommandLine : ::testing::Test {
  CLI::App app{"test", "quire"};

  void SetUp() override {
    app.require_subcommand(1);
    app.formatter(make_help_formatter());
    app.set_config("--config")->group("");
    app.config_formatter(make_config_reader("serve"));
    for (const auto add : kCommands) add(app);
  }

  // The message for a bad command line.
  std::string refusal(const std::string& arguments) {
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& e) {
      return describe(e, app);
    }
    return "accepted";
  }
};

TEST_F(CommandLine, NamesTheFlagTheRangeAndTheValue) {
  EXPECT_EQ(refusal("run -m x -p x --top-p 1.5"), "--top-p must be between 0 and 1, not 1.5");
  EXPECT_EQ(refusal("serve -m x --max-num-seqs 0"), "--max-num-seqs must be between 1 and 65536, not 0");
  EXPECT_EQ(refusal("run -m x -p x -n 0"), "--max-tokens must be at least 1, or -1 for no limit, not 0");
  EXPECT_EQ(refusal("serve -m x --max-model-len 9999999999"),
            "--max-model-len must be between 0 and 2^31 - 1, not 9999999999");
  EXPECT_EQ(refusal("serve -m x --port abc"), "--port must be a number, not 'abc'");
  EXPECT_EQ(refusal("serve -m x --port 08080"), "--port must be a decimal number without leading zeros, not 08080");
  EXPECT_EQ(refusal("serve -m x --scheduler fifo"), "--scheduler must be one of continuous,static, not fifo");
  EXPECT_EQ(
      refusal("serve -m x --speculative magic"),
      "--speculative must be one of off,auto,ngram,corpus,recent,lookahead,draft,early-exit,medusa,eagle,mtp, not "
      "magic");
  EXPECT_EQ(refusal("serve -m x --speculative-acceptance typical"),
            "--speculative-acceptance must be one of exact,rejection, not typical");
  EXPECT_EQ(refusal("serve -m x --tune always"), "--tune must be one of off,auto,force, not always");
  EXPECT_EQ(refusal("serve -m x --tune always"), "--tune must be one of off,auto,force, not always");
  EXPECT_EQ(refusal("serve -m x --kv-cache-dtype int3"),
            "--kv-cache-dtype int3 is not supported; use auto, bf16, f16, f32, fp8, int4 or int8");
}

TEST_F(CommandLine, SuggestsTheNearestFlag) {
  EXPECT_EQ(refusal("run -m x --temprature 1"), "unknown flag --temprature. Did you mean --temperature?");
  EXPECT_EQ(refusal("run -m x --qqqqqqqqqqqq"), "unknown flag --qqqqqqqqqqqq; `quire help run` describes the command");
}

TEST_F(CommandLine, ExplainsAnArgumentByWhatTheCommandTakes) {
  EXPECT_EQ(refusal("run -m x foo"), "unexpected argument 'foo'; pass a prompt with -p \"TEXT\"");
  EXPECT_TRUE(refusal("bench foo").starts_with("unexpected argument 'foo'; bench has ")) << refusal("bench foo");
  EXPECT_EQ(refusal("bench foo").find("-p"), std::string::npos) << "its -p is a length";
  EXPECT_EQ(refusal("bench serv"), "unexpected argument 'serv'. Did you mean serve?");
  EXPECT_EQ(refusal("list foo"), "unexpected argument 'foo'; `quire help list` describes the command");
}

TEST_F(CommandLine, SaysWhatIsMissingOrExcluded) {
  EXPECT_EQ(refusal("run"),
            "--model is required: a known name (`quire list`), a .gguf file, a model directory or hf:ORG/REPO");
  EXPECT_EQ(refusal("run -m x -p x --messages m"), "--prompt cannot be combined with --messages");
  EXPECT_EQ(refusal("run -m x -p"), "--prompt needs a value (TEXT)");
}

TEST_F(CommandLine, HelpFitsATerminal) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    std::istringstream help(command->help());
    for (std::string line; std::getline(help, line);) {
      EXPECT_LE(line.size(), 100u) << command->get_name() << ": " << line;
    }
  }
}

TEST_F(CommandLine, CompletionKnowsEveryCommandAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(app, shell);
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
      EXPECT_NE(script.find(command->get_name()), script.npos) << shell;
      for (const std::string& flag : flag_names(*command))
        EXPECT_NE(script.find(flag.substr(2)), script.npos) << shell << " " << flag;
    }
  }
}

}  // namespace
}  // namespace quire
