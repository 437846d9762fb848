// The flags that commands which load a model share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "quire/engine.h"

namespace quire {

// -m, -t, --kernels, --activations, --kv-cache-dtype, --max-model-len, …: the flags of a model without a scheduler.
// Defaults are those of EngineOptions. $QUIRE_KERNELS is the default of --kernels.
void add_model_options(CLI::App& app, EngineOptions& options);

// Depth and material of drafters, without --speculative.
void add_drafter_options(CLI::App& app, EngineOptions& options);

// add_model_options, and the flags of the scheduler, of speculative decoding and the prefix cache.
void add_engine_options(CLI::App& app, EngineOptions& options);

// --chat-template and --chat-template-kwargs, for commands that answer chats. Reads the file while parsing the command
// line; a wrong value is a CLI::ValidationError.
void add_chat_template_options(CLI::App& app, EngineOptions& options);

// A flag for a number of bytes: "512MiB".
CLI::Option* add_size(CLI::App& app, const char* names, size_t& bytes, const char* help);

// Flags for one of the names of --activations and --kv-cache-dtype, or auto.
CLI::Option* add_activations(CLI::App& app, const char* flag, std::string& name, const char* help);
CLI::Option* add_kv_type(CLI::App& app, const char* flag, std::string& name, const char* help);

// A number from `low` to `high`; otherwise "must be between 1 and 64, not 65".
CLI::Validator between(double low, double high);

// CLI11 reads integers as C does, 010 as 8: what is wrong with such a number, or an empty string.
std::string check_decimal(const std::string& text);

// For seeds and sizes: what is wrong, or an empty string. CLI11 alone reads -1 and 10^20 as 2^64 - 1, and 010 as 8.
std::string check_whole_number(const std::string& text);

// --pipeline-parallel-size, --micro-batch-rows, --gpu-layers, --cpu-moe and --n-cpu-moe, for commands that do not look into the
// forward pass. Part of add_engine_options().
void add_stage_options(CLI::App& app, EngineOptions& options);

// --no-run-ahead. Part of add_engine_options().
CLI::Option* add_run_ahead_option(CLI::App& app, EngineOptions& options);

// --tensor-parallel-size and --kernels alone, for commands without the flags of a model.
void add_ranks_option(CLI::App& app, int& ranks);
void add_kernels_option(CLI::App& app, std::string& kernels);

// Bytes per second that `threads` threads (0: all usable cores) read from memory, which bounds decoding speed. Takes a
// few hundredths of a second and 128 MiB; call it before the model is loaded, so that both never add up.
double measure_read_bandwidth(int threads);

// For commands that look at weights where they are, or measure the processor. Throws CLI::ValidationError: --device names
// another.
void need_cpu(const EngineOptions& options);

}  // namespace quire
