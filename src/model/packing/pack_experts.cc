#include "model/packing/pack_experts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// What speaks against a file of so many bytes in this folder; empty: nothing.
std::string objection(const std::string& folder, size_t bytes) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return std::generic_category().message(errno);
  if (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC) return "is in memory";
  const auto free = static_cast<size_t>(status.f_bavail) * static_cast<size_t>(status.f_bsize);
  return free < bytes ? fmt::format("has {} MiB free", free >> 20) : "";
}

std::vector<std::string> folders_for(const Checkpoint& checkpoint) {
  std::vector<std::string> folders;
  const auto add = [&](std::string folder) {
    if (folder.empty()) folder = ".";
    if (std::ranges::find(folders, folder) == folders.end()) folders.push_back(std::move(folder));
  };
  add(checkpoint.mappings().front().path().parent_path().string());
  if (const char* const temporary = std::getenv("TMPDIR"); temporary && *temporary) add(temporary);
  add("/var/tmp");
  add("/tmp");
  return folders;
}

// Packs all experts to the file, some at a time. Stops early if the file cannot be written.
void pack_to(ExpertFileWriter& file, std::span<const ExpertJob> experts, const Checkpoint& checkpoint, Backend& backend,
             Team& team, const ExpertFileOptions& options) {
  size_t total = 0, largest = 0, done = 0;
  for (const ExpertJob& expert : experts) {
    total += expert.bytes;
    largest = std::max(largest, expert.bytes);
  }
  constexpr size_t kMostHeld = size_t{64} << 20;  // what models that share the team compute after (pack_matrices.cc)
  BackendMemory memory(backend, std::max(largest, std::min(kMostHeld, options.memory)));
  const OnLoad report = [&](const LoadProgress& part) {
    if (options.report) options.report({part.stage, done + part.done, total});
  };
  for (size_t first = 0, end = 0; first < experts.size() && !file.failed(); first = end) {
    std::vector<MatrixJob> jobs;
    std::vector<size_t> begins;
    size_t held = 0;
    for (; end < experts.size() && held + experts[end].bytes <= memory.size(); ++end) {
      begins.push_back(held);
      for (const MatrixJob& job : experts[end].matrices) jobs.emplace_back(job).offset += held;
      held += experts[end].bytes;
    }
    if (first > 0) {  // pack_matrices() wants zeros
      backend.write(memory.data(), held, [](std::span<std::byte> to) { std::memset(to.data(), 0, to.size()); });
    }
    pack_matrices(jobs, backend, memory.data(), checkpoint.file(), checkpoint.mappings(), team, report);
    team.for_tiles(static_cast<int>(begins.size()), [&](int i, int) {
      HostCopy copy;
      const size_t expert = first + static_cast<size_t>(i);
      file.write(expert, backend.view(memory.data() + begins[static_cast<size_t>(i)], experts[expert].bytes, copy));
    });
    for (const MappedFile& mapping : checkpoint.mappings()) mapping.release();
    done += held;
  }
}

}  // namespace

ExpertFile make_expert_file(const Checkpoint& checkpoint, std::span<const ExpertJob> experts, Backend& backend,
                            Team& team, const ExpertFileOptions& options) {
  std::vector<MatrixJob> jobs;
  std::vector<size_t> sizes;
  size_t bytes = 0;
  for (const ExpertJob& expert : experts) {
    jobs.insert(jobs.end(), expert.matrices.begin(), expert.matrices.end());
    sizes.push_back(expert.bytes);
    bytes += ExpertFile::aligned(expert.bytes);
  }
  const PackIdentity identity = pack_identity(checkpoint, jobs, backend);
  const auto make = [&](const std::string& folder, bool keep, std::string& problem) {
    ExpertFileWriter writer(folder, identity, sizes, keep);
    pack_to(writer, experts, checkpoint, backend, team, options);
    checkpoint.check_unchanged();
    std::optional<ExpertFile> file = writer.finish();
    problem = writer.problem();
    return file;
  };
  std::string problem;
  if (const std::string& folder = options.pack_cache; !folder.empty()) {
    if (auto file = ExpertFile::open(folder, identity, sizes, options.warn)) return std::move(*file);
    if (const int error = open_pack_folder(folder); error != 0) {
      problem = fmt::format("cannot create the folder: {}; {}", std::generic_category().message(error), remedy(error));
    } else if (auto file = make(folder, true, problem)) {
      return std::move(*file);
    }
    if (options.warn)
      options.warn(
          fmt::format("pack cache {}: {}. The experts go to a file without a name, and the next start packs them again",
                      folder, problem));
  }
  std::vector<std::string> problems;
  for (const std::string& folder : folders_for(checkpoint)) {
    problem = objection(folder, bytes);
    if (problem.empty()) {
      if (auto file = make(folder, false, problem)) return std::move(*file);
    }
    problems.push_back(fmt::format("{} {}", folder, problem));
  }
  throw no_resource(
      "{}: the experts do not fit in memory, and a file of {} MiB for them cannot be written: {}. Name a folder with "
      "--pack-cache, or raise --memory",
      checkpoint.file(), (bytes + (1 << 20) - 1) >> 20, fmt::join(problems, "; "));
}

}  // namespace quire
