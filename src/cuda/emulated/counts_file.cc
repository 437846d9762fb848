#include "cuda/emulated/counts_file.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>

namespace quire::cuda {
namespace {

// Of the function run_kernel<Kernel>: "Kernel".
std::string type_of(const KernelEntry& entry) {
  Dl_info symbol;
  if (dladdr(entry.function, &symbol) == 0 || !symbol.dli_sname) return {};
  int status = 0;
  char* const readable = abi::__cxa_demangle(symbol.dli_sname, nullptr, nullptr, &status);
  const std::string function = readable ? readable : "";
  std::free(readable);
  const size_t first = function.find("run_kernel<"), last = function.rfind(">(");
  if (first == std::string::npos || last == std::string::npos) return {};
  const size_t type = first + std::string_view("run_kernel<").size();
  std::string name = function.substr(type, last - type);
  if (name.ends_with(' ')) name.pop_back();  // between brackets of templates
  return name;
}

}  // namespace

void append_counts(const std::string& file, std::string_view work, const DeviceFacts& facts,
                   const std::map<const KernelEntry*, KernelCounters>& counters) {
  std::ofstream out(file, std::ios::app);
  if (out.tellp() == 0)
    out << "work\tcapability\tname\tkernel\tthreads\tshared_bytes\tlaunches\tblocks\tfirst_read\tfirst_written\tglobal_"
           "read\tglobal_written\tglobal_requests\tglobal_sectors\tshared_requests\tbank_conflicts\tmatrix_products\t"
           "integer_products\n";
  for (const auto& [entry, c] : counters) {
    out << work << '\t' << facts.major << facts.minor << '\t' << entry->name << '\t' << type_of(*entry);
    for (const uint64_t value :
         {static_cast<uint64_t>(c.threads), static_cast<uint64_t>(c.shared_bytes), c.launches, c.blocks, c.first_read,
          c.first_written, c.global_read, c.global_written, c.global_requests, c.global_sectors, c.shared_requests,
          c.bank_conflicts, c.matrix_products, c.integer_products})
      out << '\t' << value;
    out << '\n';
  }
}

}  // namespace quire::cuda
