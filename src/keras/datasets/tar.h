// Members of a tar archive, compressed with gzip or not.
#pragma once

#include <map>
#include <source_location>
#include <string>
#include <vector>

namespace lockstep::keras::datasets {

// The contents of these members, each of which must be a regular file. Throws Error(io) where one is missing
// or the archive is damaged.
std::map<std::string, std::string> read_tar(const std::string& path, const std::vector<std::string>& members,
                                            std::source_location where);

}  // namespace lockstep::keras::datasets
