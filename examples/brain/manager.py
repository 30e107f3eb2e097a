"""The manager process: gathers finished segments into generations until it is stopped."""

import argparse

import ringreel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--config", default="config.yaml")
    ringreel.run_manager(parser.parse_args().config)


if __name__ == "__main__":
    main()
