#include "cli/chat/loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/files/home_folder.h"
#include "base/text/nearest.h"
#include "cli/chat/answer.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/messages.h"
#include "cli/chat/output.h"
#include "cli/chat/signals.h"
#include "cli/chat/timings.h"
#include "cli/memory/memory_table.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

std::filesystem::path history_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "history";
}

// A leading ~ is the home folder, as in a shell.
std::filesystem::path expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const std::filesystem::path home = home_folder();
  if (home.empty()) throw invalid("{}: there is no home folder: HOME is unset, and this user has none", path);
  return path == "~" ? home : home / path.substr(2);
}

class Chat {
 public:
  Chat(Engine& engine, const ChatOptions& options)
      : engine_(engine), options_(options), plain_(options.raw || !engine.chat_template()) {
    conversation_.set_system(options.system);
    timings_.bandwidth = options.bandwidth;
  }

  void run() {
    const CatchSignals catching(CatchSignals::Interrupts::kAll);
    LineEditor editor(history_file());
    greet();
    while (open_) {
      chat_signals().interrupted = false;
      const LineEditor::Line line = read_message(editor);
      if (line.end == LineEditor::End::kEof) break;
      if (line.end == LineEditor::End::kInterrupt) {
        note("press Ctrl-D or type /quit to end the chat");
      } else if (line.text.find_first_not_of(" \t") != std::string::npos) {
        editor.remember(line.text);
        obey(parse_chat_command(line.text));
      }
    }
    if (open_ && !options_.quiet) note("");
    if (!options_.quiet && timings_.answers > 0) stats();
  }

 private:
  static void note(const std::string& text) { say(Style::kNote, text); }
  static void fail(const std::string& text) { say(Style::kError, "error: " + text); }
  static void say(Style style, const std::string& text) {
    write_out(STDERR_FILENO, styled(STDERR_FILENO, style, escape_controls(text)) + "\n");
  }

  void greet() const {
    if (options_.quiet) return;
    const ModelInfo& m = engine_.info();
    note(fmt::format("{}: {}, {}, {:.0f} M parameters, context of {} tokens\nsampling: {}\n/help lists the commands",
                     m.name, m.architecture, m.quantization, static_cast<double>(m.parameters) / 1e6, m.max_model_len,
                     options_.sampling_text));
    if (plain_ && !options_.raw)
      note("this model has no chat template, so each message is continued as plain text (see --chat-template)");
  }

  // One line, or several if each ends in a backslash.
  static LineEditor::Line read_message(LineEditor& editor) {
    LineEditor::Line message{LineEditor::End::kLine, {}};
    for (const char* prompt = "> ";; prompt = ". ") {
      LineEditor::Line line = editor.read(prompt);
      if (line.end != LineEditor::End::kLine) return line;
      const bool continues = line.text.ends_with('\\');
      if (continues) line.text.back() = '\n';
      message.text += line.text;
      if (!continues) return message;
    }
  }

  void obey(const ChatCommand& command) {
    using Kind = ChatCommand::Kind;
    try {
      switch (command.kind) {
        case Kind::kText:
          return turn(command.argument);
        case Kind::kHelp:
          return note(std::string(kChatHelp, std::char_traits<char>::length(kChatHelp) - 1));
        case Kind::kReset:
          return reset();
        case Kind::kSystem:
          return system(command.argument);
        case Kind::kStats:
          return stats();
        case Kind::kSave:
          return save(command.argument);
        case Kind::kQuit:
          open_ = false;
          return;
        case Kind::kUnknown:
          return note(fmt::format("unknown command /{}.{} /help lists the commands", command.argument,
                                  did_you_mean(command.argument, chat_command_names())));
      }
    } catch (const Error& e) {
      fail(e.what());
    }
  }

  void turn(const std::string& text) {
    if (plain_) {
      answer(engine_.tokenizer().encode(text, {.add_special = true}));
      return;
    }
    conversation_.add("user", text);
    StreamedAnswer given;
    try {
      ChatInput chat{.messages = conversation_.messages()};
      engine_.require_shown(chat);
      given = answer(engine_.encode_chat(std::move(chat)));
    } catch (...) {
      conversation_.drop_last();
      throw;
    }
    // A message without any answer is dropped; a partial answer stays in the conversation.
    if (given.text.empty() && given.finish != FinishReason::kStop) {
      conversation_.drop_last();
    } else {
      conversation_.add("assistant", given.text);
    }
  }

  StreamedAnswer answer(TokenIds prompt) {
    const int length = engine_.info().max_model_len;
    const auto prompt_tokens = static_cast<int>(prompt.size());
    if (prompt_tokens >= length) {
      throw no_resource(
          "the context of {} tokens is full: with this message the conversation has {}; /reset clears it{}", length,
          prompt_tokens, plain_ ? "" : ", /save FILE saves it first");
    }
    Request request{.prompt = std::move(prompt),
                    .sampling = options_.sampling,
                    .constraint = options_.constraint,
                    .adapter = options_.adapter};
    request.sampling.seed += static_cast<uint64_t>(answers_++);
    const bool terminal = ::isatty(STDOUT_FILENO) != 0;
    const StreamedAnswer given = [&] {
      const SilentInput silent;  // keys typed meanwhile show at the next prompt, not in the answer
      return stream_answer(engine_, std::move(request), options_.loop_check, [&](std::string_view piece) {
        return write_out(STDOUT_FILENO, terminal ? escape_controls(piece) : std::string(piece));
      });
    }();
    timings_.add(given.usage);
    context_tokens_ = given.usage.prompt_tokens + given.usage.completion_tokens;
    if (given.reader_gone || !write_out(STDOUT_FILENO, given.text.ends_with('\n') ? "" : "\n")) open_ = false;
    if (given.failed()) throw invalid("{}", given.error);
    std::string cut = describe_cut(given, length);
    if (context_tokens_ >= length && given.finish == FinishReason::kLength)
      cut.insert(cut.size() - 1, "; /reset clears it");
    if (open_ && !cut.empty()) note(cut);
    return given;
  }

  void reset() {
    conversation_.reset();
    context_tokens_ = 0;
    note("conversation cleared");
  }

  void system(const std::string& text) {
    if (plain_) throw unsupported("a model without chat template has no system message");
    if (text.empty()) {
      note(conversation_.system().empty() ? "no system message; /system TEXT sets one"
                                          : "system: " + conversation_.system());
    } else {
      conversation_.set_system(text == "-" ? "" : text);
      note(text == "-" ? "system message removed" : "system message set");
    }
  }

  void save(const std::string& file) const {
    if (file.empty()) throw invalid("/save needs a file name");
    const std::filesystem::path path = expand_home(file);
    std::ofstream out(path);
    out << conversation_.messages().dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    out.close();
    if (!out) throw invalid("cannot write the conversation to {}", path.string());
    note(fmt::format("{} messages written to {}", conversation_.messages().size(), path.string()));
  }

  void stats() {
    timings_.read_drafters(engine_);
    note(fmt::format("{}context: {} of {} tokens\nseed {}\nmemory:\n  {}", to_text(timings_, engine_.info()),
                     context_tokens_, engine_.info().max_model_len, options_.sampling.seed,
                     fmt::join(memory_table(engine_.memory_plan()), "\n  ")));
  }

  Engine& engine_;
  const ChatOptions& options_;
  const bool plain_;
  Conversation conversation_;
  ChatTimings timings_;
  int answers_ = 0, context_tokens_ = 0;
  bool open_ = true;
};

}  // namespace

void chat(Engine& engine, const ChatOptions& options) { Chat(engine, options).run(); }

}  // namespace quire
