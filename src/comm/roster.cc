#include "comm/roster.h"

#include <algorithm>

namespace lockstep::comm {

void put(MessageWriter& message, const Member& member) {
  message.put(member.id).put_text(member.endpoint).put_text(member.who);
}

Member take_member(MessageReader& message) {
  Member member;
  member.id = message.get<uint64_t>();
  member.endpoint = message.get_text();
  member.who = message.get_text();
  return member;
}

int Roster::rank_of(uint64_t id) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const Member& member) { return member.id == id; });
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::string Roster::text() const {
  MessageWriter message;
  message.put(generation).put(static_cast<int32_t>(members.size()));
  for (const Member& member : members) put(message, member);
  return message.take();
}

Roster Roster::from(MessageReader& reader) {
  Roster roster;
  roster.generation = reader.get<int64_t>();
  for (auto count = reader.get<int32_t>(); count > 0 && !reader.ended(); --count)
    roster.members.push_back(take_member(reader));
  return roster;
}

}  // namespace lockstep::comm
