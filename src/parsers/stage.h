// A stage of the parser: reads an answer as runs of text and added tokens, and passes on what is not its own.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct AnswerToken {
  std::string_view text;
  bool shown = false;  // part of the text if it has no other meaning
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual void text(std::string_view run) = 0;
  virtual void token(const AnswerToken& token) = 0;
  virtual void end(bool complete) = 0;
};

// A text to look for. If it is a token of the vocabulary, text that spells it does not count.
struct Mark {
  std::string_view text;
  bool token = false;
};
using Marks = std::vector<Mark>;
using TokenSet = std::set<std::string, std::less<>>;
Marks make_marks(const std::vector<std::string_view>& texts, const TokenSet& tokens);  // without the empty ones

// Finds the marks of the current state. Bytes that may begin a mark are held back until they do or do not.
class MarkedStage : public Stage {
 public:
  void text(std::string_view run) final;
  void token(const AnswerToken& token) final;
  void end(bool complete) final;

 protected:
  // Of the current state; none of them begins another.
  virtual std::span<const Mark> marks() const = 0;
  // Consumes bytes from the run's beginning until the state changes, at least one; returns their number.
  virtual size_t plain(std::string_view run) = 0;
  virtual void hit(const Mark& mark) = 0;
  virtual void other(const AnswerToken& token) = 0;  // no mark of the state
  virtual void finish(bool complete) = 0;

  void plain_all(std::string_view run);
  bool mark_is_shown() const { return mark_is_shown_; }  // in hit(): the mark is part of the text if it means nothing

 private:
  void settle();

  std::string held_;  // the beginning of a mark
  bool mark_is_shown_ = true;
};

}  // namespace quire
