// Lines typed in a terminal, with editing and a history file (libedit).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace quire {

// Ctrl-C needs a living CatchSignals (signals.h). At most one LineEditor may exist. Pasted lines (bracketed paste) stay
// one line with newlines in it.
class LineEditor {
 public:
  enum class End { kLine, kInterrupt, kEof };
  struct Line {
    End end;
    std::string text;  // without the final newline
  };

  // If the history file is empty, or cannot be read or written, only this session's lines are remembered.
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
