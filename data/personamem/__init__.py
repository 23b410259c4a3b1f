"""PersonaMem v1: multiple choice by skill."""
