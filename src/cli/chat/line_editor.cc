#include "cli/chat/line_editor.h"

// libedit has a type called Tokenizer, as we do.
#define Tokenizer EditTokenizer
#include <histedit.h>
#undef Tokenizer

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>

#include "base/error.h"
#include "cli/chat/output.h"
#include "cli/chat/signals.h"

namespace quire {
namespace {

constexpr wchar_t kControlC = 3;
constexpr int kHistoryLines = 1000;

}  // namespace

struct LineEditor::State {
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::filesystem::path file;
  std::string prompt;
  bool interrupted = false;

  static State& of(EditLine* edit) {
    State* state = nullptr;
    el_get(edit, EL_CLIENTDATA, &state);
    return *state;
  }

  // libedit's own reader would swallow a Ctrl-C; this one turns it into a key, bound to take_interrupt.
  static int read_character(EditLine* edit, wchar_t* out) {
    ChatSignals& signals = chat_signals();
    std::mbstate_t decoding{};
    for (;;) {
      if (signals.interrupted.exchange(false)) {
        *out = kControlC;
        return 1;
      }
      if (signals.resized.exchange(false)) el_resize(edit);
      if (signals.continued.exchange(false)) {
        el_set(edit, EL_PREP_TERM, 1);
        el_set(edit, EL_REFRESH);
      }
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, 100) <= 0) continue;  // a signal may also have gone to another thread: look at the flags
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) return 0;
      const size_t used = std::mbrtowc(out, &byte, 1, &decoding);
      if (used == static_cast<size_t>(-2)) continue;
      if (used == static_cast<size_t>(-1)) *out = L'?';
      return 1;
    }
  }

  static unsigned char take_interrupt(EditLine* edit, int) {
    of(edit).interrupted = true;
    return CC_NEWLINE;
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }
};

LineEditor::LineEditor(std::filesystem::path history_file) : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");  // what is typed is UTF-8 even where LANG says nothing
  State& s = *state_;
  s.file = std::move(history_file);
  s.edit = el_init("quire", stdin, ::isatty(STDOUT_FILENO) ? stdout : stderr, stderr);
  if (!s.edit) throw no_resource("the line editor cannot start; give the prompt with -p or on standard input");
  s.history = history_init();
  el_set(s.edit, EL_CLIENTDATA, &s);
  el_set(s.edit, EL_PROMPT, &State::show_prompt);
  el_set(s.edit, EL_EDITOR, "emacs");
  el_set(s.edit, EL_ADDFN, "quire-interrupt", "Give the line up", &State::take_interrupt);
  el_set(s.edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(s.edit, nullptr);
  el_set(s.edit, EL_BIND, "^C", "quire-interrupt", nullptr);
  el_set(s.edit, EL_GETCFN, &State::read_character);
  if (!s.history) return;
  HistEvent event;
  history(s.history, &event, H_SETSIZE, kHistoryLines);
  history(s.history, &event, H_SETUNIQUE, 1);
  el_set(s.edit, EL_HIST, history, s.history);
  std::error_code ignored;
  std::filesystem::create_directories(s.file.parent_path(), ignored);
  history(s.history, &event, H_LOAD, s.file.c_str());
}

LineEditor::~LineEditor() {
  if (state_->history) history_end(state_->history);
  if (state_->edit) el_end(state_->edit);
}

LineEditor::Line LineEditor::read(const std::string& prompt) {
  State& s = *state_;
  s.prompt = prompt;
  s.interrupted = false;
  int count = 0;
  const char* line = el_gets(s.edit, &count);
  if (s.interrupted) {
    write_out(::isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, "^C\n");
    return {End::kInterrupt, {}};
  }
  if (!line || count <= 0) return {End::kEof, {}};
  std::string text(line);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return {End::kLine, std::move(text)};
}

void LineEditor::remember(const std::string& line) {
  State& s = *state_;
  if (!s.history || line.empty()) return;
  HistEvent event;
  history(s.history, &event, H_ENTER, line.c_str());
  history(s.history, &event, H_SAVE, s.file.c_str());  // at once: a session may end in any way
}

}  // namespace quire
