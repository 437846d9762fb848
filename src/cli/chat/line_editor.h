// A line typed at a terminal, with editing and a history that outlives the program (libedit).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace quire {

// Needs CatchSignals (chat_signals.h) to live, for Ctrl-C. One at a time.
class LineEditor {
 public:
  enum class End { kLine, kInterrupt, kEof };
  struct Line {
    End end;
    std::string text;  // without its newline
  };

  // A history file that cannot be read or written is not an error: the session just has no memory.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line read(const std::string& prompt);
  void remember(const std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
