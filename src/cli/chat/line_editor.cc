#include "cli/chat/line_editor.h"

// libedit has a type Tokenizer, too.
#define Tokenizer EditTokenizer
#include <histedit.h>
#undef Tokenizer

#include <fmt/format.h>
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
constexpr size_t kMaxPaste = size_t{1} << 20;  // bytes
// Terminals that know bracketed paste mark what is pasted; others ignore the request.
constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l", kPasteEnd = "\x1b[201~";
constexpr char kLiteral = 1;  // around escape sequences in the prompt, for libedit

int output_descriptor() { return ::isatty(STDOUT_FILENO) != 0 ? STDOUT_FILENO : STDERR_FILENO; }

// One byte from the terminal, or -1 if none comes for a second.
int read_pasted_byte() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  unsigned char byte = 0;
  return ::poll(&input, 1, 1000) > 0 && ::read(STDIN_FILENO, &byte, 1) == 1 ? byte : -1;
}

// Newlines as \n, no other control characters but tabs.
std::string clean_paste(std::string_view raw) {
  std::string text;
  for (size_t i = 0; i < raw.size(); ++i) {
    const auto c = static_cast<unsigned char>(raw[i]);
    if (c == '\r') {
      text += '\n';
      if (i + 1 < raw.size() && raw[i + 1] == '\n') ++i;
    } else if (c == '\t' || c == '\n' || (c >= 0x20 && c != 0x7F)) {
      text += raw[i];
    }
  }
  return text;
}

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

  // libedit's own reader would ignore Ctrl-C; this one turns it into a key, which is bound to take_interrupt.
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
      if (::poll(&input, 1, 100) <= 0) continue;  // check the flags again: another thread may have got the signal
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

  // Called after the sequence that begins a paste: inserts all of it, so that its newlines do not end the line.
  static unsigned char take_paste(EditLine* edit, int) {
    std::string raw;
    while (!raw.ends_with(kPasteEnd)) {
      const int byte = read_pasted_byte();
      if (byte < 0) break;
      raw += static_cast<char>(byte);
      if (raw.size() > 2 * kMaxPaste) raw.erase(kMaxPaste, kMaxPaste);  // the rest of a huge paste is dropped
    }
    if (raw.ends_with(kPasteEnd)) raw.resize(raw.size() - kPasteEnd.size());
    const std::string text = clean_paste(raw);
    if (text.empty()) return CC_NORM;
    return el_insertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }
};

LineEditor::LineEditor(std::filesystem::path history_file) : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");  // keys are UTF-8 even if LANG is unset
  State& s = *state_;
  s.file = std::move(history_file);
  s.edit = el_init("quire", stdin, ::isatty(STDOUT_FILENO) ? stdout : stderr, stderr);
  if (!s.edit) throw no_resource("cannot start the line editor; pass the prompt with -p or on standard input");
  s.history = history_init();
  el_set(s.edit, EL_CLIENTDATA, &s);
  el_set(s.edit, EL_PROMPT_ESC, &State::show_prompt, kLiteral);
  el_set(s.edit, EL_EDITOR, "emacs");
  el_set(s.edit, EL_ADDFN, "quire-interrupt", "Discard the line", &State::take_interrupt);
  el_set(s.edit, EL_ADDFN, "quire-paste", "Insert pasted text", &State::take_paste);
  el_set(s.edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(s.edit, nullptr);
  el_set(s.edit, EL_BIND, "^C", "quire-interrupt", nullptr);
  el_set(s.edit, EL_BIND, "\\e[200~", "quire-paste", nullptr);
  el_set(s.edit, EL_GETCFN, &State::read_character);
  if (!s.history) return;
  HistEvent event;
  history(s.history, &event, H_SETSIZE, kHistoryLines);
  history(s.history, &event, H_SETUNIQUE, 1);
  el_set(s.edit, EL_HIST, history, s.history);
  if (s.file.empty()) return;
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
  const int output = output_descriptor();
  s.prompt = prompt;
  if (has_colours(output)) {
    const auto [begin, end] = escapes(Style::kPrompt);
    s.prompt = fmt::format("{0}{1}{0}{2}{0}{3}{0}", kLiteral, begin, prompt, end);
  }
  s.interrupted = false;
  int count = 0;
  const bool terminal = ::isatty(output) != 0;
  if (terminal) write_out(output, kPasteOn);
  const char* line = el_gets(s.edit, &count);
  if (terminal) write_out(output, kPasteOff);
  if (s.interrupted) {
    write_out(output, "^C\n");
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
  if (!s.file.empty()) history(s.history, &event, H_SAVE, s.file.c_str());  // now, because a session may end in any way
}

}  // namespace quire
