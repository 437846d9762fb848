#include "engine/answer/outbox.h"

#include <new>
#include <utility>

#include "quire/error.h"

namespace quire {

Outbox::Outbox(size_t most, Failed failed) : failed_(std::move(failed)) { messages_.reserve(most); }

void Outbox::add(const Sequence& s, Output&& out) {
  if (messages_.size() == messages_.capacity()) tell();
  messages_.push_back({s.id, s.request, std::move(out)});
}

void Outbox::tell() {
  for (size_t i = 0; i < messages_.size(); ++i) {
    if (!messages_[i].request) continue;
    try {
      messages_[i].request->callback(messages_[i].out);
    } catch (const std::bad_alloc&) {
      give_up(i, kOutOfMemory);
    } catch (const Error& e) {
      give_up(i, e.what());
    }
  }
  messages_.clear();
}

// The client gets no further output of this choice.
void Outbox::give_up(size_t at, std::string_view error) {
  const std::shared_ptr<const RequestState> request = messages_[at].request;
  const int choice = messages_[at].out.choice;
  for (size_t i = at; i < messages_.size(); ++i)
    if (messages_[i].request == request && messages_[i].out.choice == choice) messages_[i].request = nullptr;
  try {
    Output out;
    out.choice = choice;
    out.finish = FinishReason::kError;
    out.error = error;
    request->callback(out);
  } catch (const std::bad_alloc&) {  // the client cannot be told
  } catch (const Error&) {
  }
  failed_(messages_[at].id);
}

}  // namespace quire
