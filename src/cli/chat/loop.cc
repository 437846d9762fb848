#include "cli/chat/loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "cli/chat/answer.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/messages.h"
#include "cli/chat/output.h"
#include "cli/chat/signals.h"
#include "cli/chat/timings.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

std::filesystem::path history_file() {
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home && *home ? home : ".") / ".cache/quire/history";
}

class Chat {
 public:
  Chat(Engine& engine, const ChatOptions& options)
      : engine_(engine), options_(options), plain_(options.raw || !engine.chat_template()) {
    conversation_.set_system(options.system);
  }

  void run() {
    const CatchSignals catching(CatchSignals::Interrupts::kAll);
    LineEditor editor(history_file());
    greet();
    while (open_) {
      const LineEditor::Line line = read_message(editor);
      if (line.end == LineEditor::End::kEof) break;
      if (line.end == LineEditor::End::kInterrupt) {
        note("Ctrl-D or /quit ends the chat");
      } else if (line.text.find_first_not_of(" \t") != std::string::npos) {
        editor.remember(line.text);
        obey(parse_chat_command(line.text));
      }
    }
    if (open_ && !options_.quiet) note("");
    if (!options_.quiet && timings_.answers > 0) stats();
  }

 private:
  static void note(const std::string& text) { write_out(STDERR_FILENO, escape_controls(text) + "\n"); }

  void greet() const {
    if (options_.quiet) return;
    const ModelInfo& m = engine_.info();
    note(fmt::format("{}: {}, {}, {:.0f} M parameters, {} tokens of context. /help lists the commands.", m.name,
                     m.architecture, m.quantization, static_cast<double>(m.parameters) / 1e6, m.max_model_len));
    if (plain_ && !options_.raw) note("The model has no chat template: each line is continued as plain text.");
  }

  // One line, or several joined by a backslash at the end.
  static LineEditor::Line read_message(LineEditor& editor) {
    LineEditor::Line whole{LineEditor::End::kLine, {}};
    for (const char* prompt = "> ";; prompt = ". ") {
      LineEditor::Line line = editor.read(prompt);
      if (line.end != LineEditor::End::kLine) return line;
      const bool goes_on = line.text.ends_with('\\');
      if (goes_on) line.text.back() = '\n';
      whole.text += line.text;
      if (!goes_on) return whole;
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
          return note(fmt::format("there is no command /{}; /help lists them", command.argument));
      }
    } catch (const Error& e) {
      note(fmt::format("error: {}", e.what()));
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
      given = answer(engine_.encode_chat({.messages = conversation_.messages()}));
    } catch (...) {
      conversation_.drop_last();
      throw;
    }
    // What was never answered is not part of the conversation; half an answer is.
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
          "the context of {} tokens is full: with this message the conversation has {}. /reset forgets it{}", length,
          prompt_tokens, plain_ ? "" : ", /save FILE keeps it");
    }
    Request request{.prompt = std::move(prompt), .sampling = options_.sampling};
    request.sampling.seed += static_cast<uint64_t>(answers_++);
    const bool terminal = ::isatty(STDOUT_FILENO);
    chat_signals().interrupted = false;
    const StreamedAnswer given = stream_answer(engine_, std::move(request), [&](std::string_view piece) {
      return write_out(STDOUT_FILENO, terminal ? escape_controls(piece) : std::string(piece));
    });
    chat_signals().interrupted = false;
    timings_.add(given.usage);
    context_tokens_ = given.usage.prompt_tokens + given.usage.completion_tokens;
    if (given.reader_gone || !write_out(STDOUT_FILENO, given.text.ends_with('\n') ? "" : "\n")) open_ = false;
    if (given.finish == FinishReason::kError) throw invalid("{}", given.error);
    if (given.finish == FinishReason::kCancelled && open_) note("[stopped]");
    if (given.finish == FinishReason::kLength) {
      note(context_tokens_ >= length ? fmt::format("[the context of {} tokens is full: /reset begins anew]", length)
                                     : fmt::format("[cut after {} tokens, as -n says]", given.usage.completion_tokens));
    }
    return given;
  }

  void reset() {
    conversation_.reset();
    context_tokens_ = 0;
    note("the conversation is forgotten");
  }

  void system(const std::string& text) {
    if (plain_) throw unsupported("plain text has no system message");
    if (text.empty()) {
      note(conversation_.system().empty() ? "there is no system message" : "system: " + conversation_.system());
    } else {
      conversation_.set_system(text == "-" ? "" : text);
    }
  }

  void save(const std::string& file) const {
    if (file.empty()) throw invalid("/save needs the name of a file");
    std::ofstream out(file);
    out << conversation_.messages().dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    out.close();
    if (!out) throw invalid("{}: the conversation cannot be written there", file);
    note(fmt::format("{} messages written to {}", conversation_.messages().size(), file));
  }

  void stats() {
    measure_limit(timings_, engine_.info());
    note(fmt::format("{}context {} of {} tokens\nseed    {}", to_text(timings_, engine_.info()), context_tokens_,
                     engine_.info().max_model_len, options_.sampling.seed));
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
