// Libraries of the program that it opens at run time: what not every machine has is not linked.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// The function `symbol` of libquire_NAME.so, which lies beside the program or in ../lib/quire. The library stays loaded.
class Plugin {
 public:
  // wanted_by: a flag and its value, for messages. build: the command that builds the library. Throws Error: there is no such
  // library, or it cannot be loaded.
  Plugin(std::string_view name, const char* symbol, std::string_view wanted_by, std::string_view build);

  template <class Function>
  Function function() const {
    return reinterpret_cast<Function>(symbol_);
  }
  // Throws Error: the library and the program are of different versions.
  [[noreturn]] void refuse_version() const;

 private:
  std::string path_, wanted_by_;
  void* symbol_ = nullptr;
};

}  // namespace quire
