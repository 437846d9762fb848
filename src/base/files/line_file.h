// Text files that are read line by line.
#pragma once

#include <cstddef>
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
  int number() const { return number_; }  // number of the last line, from 1

 private:
  bool fill();

  std::string what_;
  int fd_ = -1;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;  // buffer_[at_, end_) was read from the file and not yet returned
  int number_ = 0;
};

}  // namespace quire
