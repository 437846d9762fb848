// Makes valid JSON of the arguments that a model writes, byte by byte, so that they can be streamed.
//
// Valid JSON passes unchanged. Models also write raw line ends and quotes inside strings, escapes that JSON does not
// have, a comma too many or too few, words without quotes, Python's True and None, brackets that do not match. Clients
// parse arguments strictly, and one that cannot ends its session; so each of these is written as JSON has it. What has
// been passed on cannot be taken back: whatever follows the opening brace, the result is an object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

class JsonMender {
 public:
  // Consumes bytes up to the object's end, or up to where a string begins or ends, at least one; returns their number.
  // Appends what is certain. The first byte is the object's opening brace.
  size_t add(std::string_view run, std::string& out);

  bool ended() const { return state_ == State::kEnded; }
  // Inside a string that no quote makes doubtful: text that spells a mark is part of it.
  bool in_string() const { return (state_ == State::kString || state_ == State::kKeyString) && !doubtful_; }

  void close(std::string& out);      // the call ends here: completes the object
  void cut(std::string& out) const;  // the answer was cut off here: appends what is held back

 private:
  enum class State : uint8_t {
    kKey,        // before a key
    kKeyString,  // in a key with quotes
    kKeyEnd,     // after its closing quote, which may turn out to be part of it
    kBareKey,    // in a key without quotes
    kValue,      // before a value
    kString,
    kStringEnd,    // like kKeyEnd
    kStringComma,  // after a comma that follows it, where a key with quotes should come
    kBare,         // in a number or word
    kAfter,        // after a value
    kEnded,
  };

  void step(char c, std::string& out);
  void before_key(char c, std::string& out);
  void before_value(char c, std::string& out);
  void after_value(char c, std::string& out);
  void bare_key(char c, std::string& out);
  void bare_value(char c, std::string& out);
  void string(char c, std::string& out);
  void plain(char c, std::string& out);
  void key_end(char c, std::string& out);
  void string_end(char c, std::string& out);
  void string_comma(char c, std::string& out);

  void begin_element(std::string& out);
  void begin_string(char quote, State state, std::string& out);
  void open(char bracket, std::string& out);
  void closing(char c, std::string& out);
  void pop(std::string& out);
  void end_escape(std::string& out);
  void end_high(std::string& out);
  void end_key(std::string& out);
  void end_string(std::string& out);
  void end_string_and_comma(std::string& out);
  void end_bare(std::string& out);
  void resume_string(State state, std::string& out);
  void null_value(std::string& out);
  void next_element();
  bool in_list() const { return !stack_.empty() && stack_.back() == '['; }

  State state_ = State::kKey;
  std::string stack_;       // open brackets; 'x' for one too many, which is left out
  size_t lists_ = 0;        // how many of them are '['
  bool empty_ = true;       // the innermost bracket has no element yet
  char quote_ = '"';        // the quote around the string
  bool key_quoted_ = true;  // whether the last key has quotes
  bool doubtful_ = false;   // a quote inside the string was taken as part of it
  bool escape_ = false, hex_ = false;
  std::string digits_;  // digits of an escape \u
  std::string high_;    // the first escape of a surrogate pair
  std::string space_;   // white space after a comma or a closing quote; in kStringComma both, and the comma
  bool comma_ = false;  // a comma was seen and not yet written
  std::string word_;    // without quotes
};

// An object out of a whole text, as JsonMender has it; "{}" if the text is empty or null. Nothing: it is none.
std::optional<std::string> mended_object(std::string_view text);

// The content of a JSON string with its quotes; raw line ends and the like are part of it. Nothing: it is none.
std::optional<std::string> mended_string(std::string_view quoted);

}  // namespace quire
