// The command-line tool: a subcommand a file.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.h"
#include "lockstep/base/error.h"

int main(int argc, char** argv) {
  CLI::App app{"Lockstep trains neural networks on all devices of a machine, in lockstep.", "lockstep"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "lockstep 0.1.0");
  app.footer("Every command explains itself with --help.");
  int status = 0;
  lockstep::cli::add_train(app, status);
  lockstep::cli::add_doctor(app, status);
  lockstep::cli::add_checkpoint(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // --help and --version are errors too, of status 0
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 1;
  }
  return status;
}
