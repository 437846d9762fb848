// Text files that are read line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

class LineFile {
 public:
  // what: names the file in messages. Throws Error if the file cannot be opened (kNotFound), or is neither a regular
  // file nor a pipe (kInvalid). A pipe without a writer is empty.
  LineFile(const std::string& path, std::string what);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // The next line without its end. Returns false at the end of the file; throws Error for a line of more than `longest`
  // bytes, and if the file cannot be read.
  bool next(std::string& line, size_t longest);
  enum class Line : uint8_t { kWhole, kTooLong, kEnd };
  // The same, but passes over a line of more than `longest` bytes: `line` has its first ones then.
  Line next_or_skip(std::string& line, size_t longest);
  // Whether there is something to read, or the file has ended: a pipe's writer may take its time.
  bool is_ready() const;
  int number() const { return number_; }  // number of the last line, from 1

 private:
  bool fill();
  Line read(std::string& line, size_t longest, bool skips);

  std::string what_;
  int fd_ = -1;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;  // buffer_[at_, end_) was read from the file and not yet returned
  int number_ = 0;
};

}  // namespace quire
